"""The tests that only `make test-all` runs: groups of the table below, and cases of large products.

A single long test has the marker `long` itself.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from zlib import crc32

import pytest

from tests.support.loops import LOOPS

CONTRACT = Path(__file__).parents[1] / "contract"


@dataclass(frozen=True)
class Group:
    """Tests that are long for one reason. CONTRIBUTING.md has each title and its minutes."""

    title: str
    # Of one process.
    minutes: float
    # In each file the beginnings of tests' names, and a pattern of those parameters with which they
    # stay in `make test`.
    tests: dict[str, dict[str, str]]


# Groups, and below each its tests: the file, the beginning of the name, and the parameters with
# which they stay in `make test`. Without these none does.
TABLE = r"""
Loads of hotcount-load, their studies and their reports | 2.6
  integration/loadtest/test_report_studies.py::test_a_study_that_is
  integration/loadtest/test_report_studies.py::test_a_search_says_what_was
  integration/loadtest/test_report_studies.py::test_a_page_of_a
  integration/loadtest/test_report_studies.py::test_a_scale_has_its
  integration/loadtest/test_report_studies.py::test_a_sweep_says_which
  integration/loadtest/test_report_studies.py::test_a_search_that_confirmed
  integration/loadtest/test_report_studies.py::test_an_audit_that_found
  integration/loadtest/test_report_comparisons.py::test_what_was_overloaded_has
  integration/loadtest/test_report.py::test_html_draws_a_run
  integration/loadtest/test_report.py::test_the_series_has_each
  integration/loadtest/test_sql_votes.py::
  integration/loadtest/test_hotcount_load_servers.py::test_every_strategy_on_sql
  integration/loadtest/test_hotcount_load_databases.py::
  integration/loadtest/test_compare_builds.py::test_calls_and_loads_on
  integration/loadtest/test_hotcount_load_groups.py::test_a_replica_in_a  cached-redis.kill9
  integration/loadtest/test_hotcount_load_groups.py::test_a_sentinel_replaces  cached|pause
  integration/loadtest/test_hotcount_load_groups.py::test_the_standby_of_a  kill9
  integration/loadtest/test_hotcount_load_groups.py::test_votes_on_all_nodes
  integration/loadtest/test_exec_drivers.py::test_a_driver_that_cannot  ^(?!empty_pages)
  integration/loadtest/test_hotcount_load_studies.py::test_a_comparison_has_its
  integration/loadtest/test_hotcount_load_redis.py::test_the_canonical_comparison_has
  integration/loadtest/test_hotcount_load_redis.py::test_keys_whose_adders_never  ttl
  integration/loadtest/test_hotcount_load_kept_redis.py::test_each_trial_on_a
  integration/loadtest/test_hotcount_load_ends.py::test_a_folder_is_of
  integration/loadtest/test_peers.py::test_waiters_are_measured_beside
Kills, storms, hammering of many callers | 3.2
  integration/sql/test_outside_storm.py::
  integration/sql/test_outside_writes_mariadb.py::test_counts_are_the_rows
  integration/sql/test_votes_folds.py::test_folds_of_several_processes  postgresql
  integration/sql/test_postgres_batches.py::test_without_an_answer_the
  integration/sql/test_postgres_batches.py::test_batches_beside_folds_and
  integration/aio/test_aio_bounds.py::test_100_000_calls_that_expire  each
  integration/aio/test_aio_votes.py::test_a_loop_that_ends
  contract/test_votes_cleaning.py::test_an_item_that_is  sqlite
  contract/test_votes_cleaning.py::test_a_user_of_many  sqlite
  faults/test_votes_on_servers.py::test_a_commit_whose_answer  postgres
  faults/test_votes_on_servers.py::test_kills_of_everybody_beside
  faults/test_fold_kills.py::  postgresql
  faults/test_failover.py::test_a_promotion_under_load  kill|stop-mariadb|black_hole-postgresql
  faults/test_failover.py::test_a_standby_alone  True-postgresql|False-mariadb
  faults/test_redis_demoted.py::test_writers_of_a_replica
  faults/test_two_sqlites.py::test_a_process_forks_while
  faults/test_two_sqlites.py::test_three_processes_with_another  apsw
  faults/test_busy_streams.py::test_streams_that_are_full  postgresql
  faults/test_busy_streams.py::test_a_child  sqlite-write_behind|mariadb-views|postgresql-cached
  faults/test_retry_queue.py::test_bytes_that_arrive_after  ttl
  faults/test_retry_queue.py::test_a_killed_program_and
  faults/test_retry_windows.py::test_each_add_is_counted
  faults/test_kill9_generator.py::  0
  races/test_rebuild_storm.py::
Connections cut at each byte, garbage and floods of replies, drawn calls | 2.5
  hostile/test_passwords.py::test_a_password_in_a_url_shows  ^(?!valkeys)
  faults/test_redis_script_cuts.py::  answered|^1-
  faults/test_redis_cuts.py::test_a_pipeline_cut_after  answered
  faults/test_garbage_replies.py::test_every_concept_gets_a  tls|no integer
  integration/sql/test_postgres.py::test_wherever_the_answers_end
  hostile/test_unwanted_replies.py::test_replies_that_are_dropped  pushes-alone|attributes-aio
  hostile/test_unwanted_replies.py::test_an_extra_reply_is  ^(?!late)|late-:9$
  hostile/test_unwanted_replies.py::test_a_flood_does_not  pushes
  hostile/test_unwanted_replies.py::test_a_call_ends_by  -(add|alone)$
  hostile/test_fuzz.py::
  faults/test_script_refusals.py::test_a_user_who_may_not  fresh|there
  hostile/test_fake_sql_servers.py::test_a_password_that_postgres  ^(?!53300)
Models: drawn orders, and all orders of a few steps | 0.5
  races/test_stream_model.py::test_every_order  ^(?!a slow clock|a name that|votes during|pruning)
  races/test_views_model.py::test_drawn_orders_of_all
  races/test_retry_model.py::test_every_order_of_few  ^(?!a clock)
  races/test_write_behind_model.py::test_1000_drawn_schedules_of
Time limits of servers, outages, lives of keys | 5.2
  integration/sql/test_outside_postgres.py::test_a_cascade_that_nothing
  faults/test_erased_stays.py::test_a_page_that_arrives_late  ^(?!mariadb)
  integration/package/test_cli_doctor_folds.py::test_a_journal_that_somebody  postgresql
  integration/package/test_cli_doctor_folds.py::test_a_journal_that_nobody  postgresql
  integration/sql/test_sync_command.py::test_sync_says_once_that  ^(?!redis-write_behind)
  integration/sql/test_votes_replica_promoted.py::
  integration/sql/test_votes_replica.py::test_a_primary_that_takes
  integration/sql/test_idle_connections.py::test_connections_that_a_firewall  postgresql
  integration/sql/test_idle_connections.py::  postgresql|slotted
  integration/sql/test_idle_connections.py::test_wait_timeout_fails_no
  integration/sql/test_server_time_limits.py::test_the_time_limit_of_a_statement_ends
  integration/sql/test_server_time_limits.py::test_room_that_others_have
  integration/sql/test_mariadb.py::test_locks_of_a_process
  integration/sql/test_mariadb_journal.py::test_votes_count_on_servers  ANSI,PIPES|SERIALIZABLE
  integration/sql/test_mariadb_journal.py::test_a_vote_that_outlives
  integration/sql/test_votes_removal.py::test_an_error_says_what  postgresql
  integration/sql/test_full_servers.py::test_waiting_callers_dial_one  postgresql
  integration/sql/test_outside_triggers_mariadb.py::test_triggers_of_r  both-count|(vote|item)s-None
  integration/redis/test_redis_greeting.py::test_a_full_server_is  socket
  integration/redis/test_cluster_nodes.py::test_adds_that_wait_are
  integration/web/test_limits_adapter.py::test_a_store_that_is  async
  faults/test_slow_commits.py::test_leader_without_time_for  postgresql
  faults/test_synchronous_standbys.py::test_votes_that_wait_for  LOCK TABLES
  faults/test_synchronous_standbys.py::test_votes_that_a_standby  postgres_primary
  faults/test_synchronous_standbys.py::test_votes_that_no_standby  postgres_primary
  faults/test_redis_dialling.py::
  faults/test_redis_refusals.py::test_a_server_that_loads
  faults/test_write_behind.py::test_votes_are_acknowledged_while
  faults/test_limiter_false_outages.py::
  faults/test_limiter_clocks.py::test_nobody_waits_longer  ^redis|5/minute \[
  faults/test_limiter_clocks.py::test_whoever_asks_first  ^(redis|sqlite|mariadb-hit)
  faults/test_silent_server.py::test_a_server_that_takes
  faults/test_script_refusals.py::test_a_server_that_takes  ^(?!replica-read-only)
  races/test_journal_orders.py::test_a_row_that_commits_behind  postgres
  races/test_journal_orders.py::test_a_fold_waits_for_no_vote  postgres
  races/test_journal_orders.py::test_a_held_item_is  postgres
  contract/test_period_counter_contract.py::test_a_period_is_gone  redis
  contract/test_counter_op_id.py::test_an_op_id_is  redis
  contract/test_counter_op_id.py::test_counters_that_remember_for
  contract/test_counter_op_id.py::test_a_retry_is_known  redis
  contract/test_counter_op_id.py::test_an_id_of_a  memory
  contract/test_slotted_counter_contract.py::test_an_op_id_is_forgotten  sqlite-memory
Builds of programs, notebooks, runs of pytest inside of pytest | 2.4
  integration/web/test_django_votes.py::test_the_tests_of_a  postgresql-2
  integration/web/test_django_migrations.py::test_migrations_make_what  sqlite
  integration/web/test_django_migrations.py::test_later_migrations_keep  sqlite
  integration/web/test_django_migrations.py::test_migrating_back_drops  postgresql
  integration/web/test_django_migrations.py::test_likes_of_before  postgresql
  integration/web/test_django_migrations.py::test_a_failed_or_killed  sqlite|mariadb
  integration/web/test_django_votes.py::test_ids_that_are  postgresql
  integration/web/test_django_votes.py::test_a_forked_child  mariadb
  integration/web/test_django_migrations.py::test_renamed  (sqlite|mariadb)-renaming0|l-renaming1
  integration/package/test_types.py::  mypy|^$
  integration/package/test_notebooks.py::test_notebook_runs  slotted_counters
  integration/package/test_cmake_package.py::
  integration/package/test_header_examples.py::
  codebase/test_require_servers.py::test_a_missing_mysql_is  with-the-plugin
  integration/package/test_op_id_memory.py::test_no_hash_of_op  ^k$
  integration/package/test_readme.py::test_shell_commands_succeed  ^make test|-r 1000
"""


def groups_in(table: str) -> list[Group]:
    groups: list[Group] = []
    for line in table.strip().splitlines():
        if not line.startswith(" "):
            title, _, minutes = line.partition(" | ")
            groups.append(Group(title, float(minutes), defaultdict(dict)))
            continue
        test, _, stay = line.strip().partition("  ")
        file, _, name = test.partition("::")
        groups[-1].tests[file][name] = stay or "(?!)"
    return groups


GROUPS = groups_in(TABLE)

# Of a product of these a case, which is a test with its other parameters, meets one in `make test`.
# Its name chooses which, so that many cases meet each of them.
STRATEGIES = (
    *("naive", "slotted", "batched", "cached"),
    *("cached-memory", "cached-redis", "cached-cluster"),
)
# The contract holds for each of them alike. Tests in other folders are about their differences.
DATABASES = ("sqlite-file", "postgresql", "mariadb")
IDS = {name: name for name in STRATEGIES} | {each.values[0]: str(each.id) for each in LOOPS}
ON_MYSQL = (
    "contract/test_votes_contract.py",
    "contract/test_slotted_counter_contract.py",
    "integration/sql/test_journal_batches.py",
    "integration/sql/test_mariadb",
    "integration/sql/test_votes_folds.py",
)
CONTRACT_IDS = IDS | {name: name for name in DATABASES}


def may_run_on_mysql(file: Path) -> bool:
    """Whether a test of this file may run with --mysql that is not long."""
    name = file.relative_to(CONTRACT.parent).as_posix()
    return name.startswith(ON_MYSQL) or "mysql_only" in file.read_text()


def mark_long_tests(items: Sequence[pytest.Item], *, mysql: bool) -> None:
    """mysql: the run is of --mysql. The differences between MySQL and MariaDB are in few files."""
    kept: dict[str, list[tuple[str, re.Pattern[str]]]] = defaultdict(list)
    for group in GROUPS:
        for file, tests in group.tests.items():
            kept[file] += [(f"{file}::{name}", re.compile(ids)) for name, ids in tests.items()]
    cases = defaultdict(list)
    for item in items:
        test, _, ids = item.nodeid.removeprefix("tests/").partition("[")
        for name, stay in kept[test.partition("::")[0]]:
            if test.startswith(name) and not stay.search(ids.removesuffix("]")):
                item.add_marker(pytest.mark.long)
        if mysql and not test.startswith(ON_MYSQL) and not item.get_closest_marker("mysql_only"):
            item.add_marker(pytest.mark.long)
        case = case_of(item)
        if case != item.nodeid and item.get_closest_marker("long") is None:
            cases[case].append(item)
    for case, alike in cases.items():
        chosen = alike[crc32(case.encode()) % len(alike)]
        for item in alike:
            if item is not chosen:
                item.add_marker(pytest.mark.long)


def case_of(item: pytest.Item) -> str:
    """The test's name without the ids of a product. It keeps them where the database is the SQLite
    in memory, which costs little."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if params.get("database") == "sqlite-memory":
        return item.nodeid
    ids = CONTRACT_IDS if item.path.is_relative_to(CONTRACT) else IDS
    case = item.nodeid
    for value in params.values():
        if isinstance(value, str | type | FunctionType) and value in ids:
            case = case.replace(ids[value], "", 1)
    return case
