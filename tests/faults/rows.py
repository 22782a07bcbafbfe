"""The faults that hotcount is held to, and the tests that inject each of them.

`make faults` runs a row's tests on all its databases and stores and prints what passed; `make test`
runs the same tests among the others. A test during which no proof of its row was counted is void
(tests/support/fired.py). A row without a test for one of its backends has not passed.

Tests are named by the beginning of their path and name under tests/. "each" stands for tests whose
ids name the backend.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from tests.support.fired import ON_MYSQL

SQL = "sqlite postgresql mariadb"
SERVERS = "postgresql mariadb"


@dataclass(frozen=True)
class Row:
    number: int
    what: str
    # One of them is counted in each test: the fault took place.
    proofs: tuple[str, ...]
    # Words: every one has a test.
    backends: str
    # By backend, or "each".
    tests: dict[str, str]
    # A pattern of tests that inject nothing, or run for hours.
    but: str = ""


ROWS = (
    Row(
        1,
        "a proxy drops the reply at every command boundary",
        ("proxy cut", "fake server"),
        "redis postgresql mariadb",
        {
            "redis": """
                faults/test_redis_cuts.py::test_a_pipeline_cut
                faults/test_redis_script_cuts.py::test_an_add_with_an_op_id_whose
                faults/test_rebuild_faults.py::test_a_publication_whose_answer
                faults/test_reservations.py::test_a_reserve_whose_reply
                faults/test_concurrency_limit.py::test_an_acquire_whose_reply
            """,
            "postgresql": "integration/sql/test_postgres.py::test_wherever_the_answers_end",
            "each": "faults/test_votes_on_servers.py::test_a_commit_whose_answer",
        },
    ),
    Row(
        2,
        "the connection is cut after every byte of a pipeline",
        ("proxy cut", "fake server"),
        "redis postgresql mariadb",
        {
            "redis": """
                faults/test_redis_cuts.py::test_a_pipeline_cut
                faults/test_redis_script_cuts.py::test_a_batch_of_script_calls
                faults/test_redis_script_cuts.py::test_script_calls_of_many_threads
                faults/test_retry_queue.py::test_a_cut_at_any_byte
                faults/test_retry_periods.py::test_a_cut_at_any_byte
                faults/test_write_behind_counter.py::test_a_cut_at_any_byte
                faults/test_rebuild_faults.py::test_a_chunk_that_is_cut
            """,
            "postgresql": "hostile/test_fake_sql_servers.py::test_postgres_that_hangs_up",
            "mariadb": "hostile/test_fake_sql_servers.py::test_mariadb_that_hangs_up",
        },
    ),
    Row(
        3,
        "a black hole swallows what is sent or answered",
        ("proxy hole", "SIGSTOP"),
        "redis postgresql mariadb",
        {
            "redis": """
                faults/test_redis_cuts.py::test_a_black_hole
                faults/test_silent_server.py::test_a_black_hole_is_given_up
                faults/test_silent_server.py::test_the_first_success_comes
                faults/test_silent_server.py::test_a_loop_gives_a_black_hole
            """,
            "postgresql": "integration/sql/test_postgres.py::test_a_server_that_does_not_answer",
            "mariadb": "integration/sql/test_mariadb.py::test_a_stopped_server_costs",
            "each": """
                integration/sql/test_idle_connections.py::test_connections_that_a_firewall
                faults/test_failover.py::test_a_promotion_under_load_loses_and_doubles_nothing[black
            """,
        },
    ),
    Row(
        4,
        "connections are reset every 200 ms",
        ("proxy reset",),
        "redis postgresql mariadb",
        {
            "redis": "faults/test_redis_cuts.py::test_resets_under_load",
            "each": "faults/test_slow_networks.py::test_connections_that_are_reset",
        },
    ),
    Row(
        5,
        "slices of one byte, latency of 200 +- 200 ms",
        ("proxy slice", "proxy delay"),
        "redis postgresql mariadb",
        {
            "redis": "faults/test_redis_cuts.py::test_replies_in_slices",
            "each": "faults/test_slow_networks.py::test_a_network_that_is_slow",
        },
    ),
    Row(
        6,
        "kill -9 of Redis; AOF always, everysec, off",
        ("SIGKILL",),
        "redis sqlite",
        {
            "redis": """
                faults/test_write_behind.py::test_kills_of_a_redis_that_syncs
                faults/test_write_behind_counter.py::test_a_redis_killed_without
                faults/test_retry_queue.py::test_a_server_that_kept_its_data
                faults/test_retry_failover.py::test_an_add_that_was_replicated
                faults/test_write_behind.py::test_a_storm
            """,
            "sqlite": "integration/sql/test_cached_votes.py::test_votes_go_on_while_redis",
        },
    ),
    Row(
        7,
        "Redis stands still (SIGSTOP) for up to 30 s",
        ("SIGSTOP",),
        "redis",
        {
            "redis": """
                faults/test_silent_server.py::test_a_server_that_stands_still_for_30
                faults/test_retry_queue.py::test_a_paused_server
                faults/test_write_behind_counter.py::test_an_add_to_a_paused
                faults/test_limiter_outages.py::test_the_policy_answers_until_redis_does[paused
            """
        },
    ),
    Row(
        8,
        "OOM, MISCONF, LOADING, READONLY, NOPERM",
        ("redis OOM", "redis READONLY", "redis NOPERM", "redis LOADING", "fake reply"),
        "redis",
        {
            "redis": """
                faults/test_redis_refusals.py::test_a_replica_has
                faults/test_redis_refusals.py::test_a_server_out_of_memory
                faults/test_redis_refusals.py::test_a_server_that_loads
                faults/test_redis_refusals.py::test_a_user_who_may_run
                faults/test_redis_refusals.py::test_a_key_that_the_acl
                faults/test_op_id_refusals.py::test_a_server_that_is_out_of_memory
                faults/test_limiter_outages.py::test_a_server_that_is_not_ready
                integration/redis/test_counter_server_faults.py::test_a_replica_refuses
                integration/redis/test_counter_server_faults.py::test_a_server_without_memory
                integration/redis/test_counter_server_faults.py::test_a_command_that_the_acl
            """
        },
        but=r"out_of_memory_has\w*\[remove\]",  # It needs no memory.
    ),
    Row(
        9,
        "allkeys-lru evicts counters and copies of counts",
        ("evicted",),
        "redis",
        {
            "redis": """
                faults/test_evictions.py::
                faults/test_rebuild_faults.py::test_a_server_that_evicts
            """
        },
    ),
    Row(
        10,
        "SCRIPT FLUSH ten times a second",
        ("redis NOSCRIPT",),
        "redis",
        {
            "redis": """
                faults/test_redis_refusals.py::test_scripts_flushed_ten_times
                races/test_combined_calls.py::test_scripts_that_are_flushed
                races/test_combined_upserts.py::test_upserts_survive_flushed
                faults/test_rebuild_faults.py::test_flushed_scripts
            """
        },
    ),
    Row(
        11,
        "Sentinel: the primary is killed or replaced",
        ("SIGKILL", "failover"),
        "redis",
        {
            "redis": """
                faults/test_sentinel_failover.py::test_adds_go_on_at_the_new_primary[kill
                faults/test_sentinel_failover.py::test_votes_are_exact_after
            """
        },
    ),
    Row(
        12,
        "Sentinel: the client is still at the old primary",
        ("SIGSTOP", "fake server"),
        "redis",
        {"redis": "faults/test_sentinel_failover.py::test_a_primary_that_was_paused"},
    ),
    Row(
        13,
        "Cluster: slots move (MOVED, ASK, TRYAGAIN), or half-way",
        ("fake reply", "redis MOVED", "redis ASK", "redis TRYAGAIN", "migration cancelled"),
        "redis",
        {
            "redis": """
                integration/redis/test_cluster_nodes.py::test_words_of_nodes
                faults/test_redis_cluster.py::test_slots_move
                faults/test_redis_cluster.py::test_valkey_moves_slots
                faults/test_redis_cluster.py::test_valkey_moves_no_slot
                faults/test_redis_cluster.py::test_a_slot_that_has_half
                faults/test_redis_cluster.py::test_a_reshard_that_was_interrupted
            """
        },
    ),
    Row(
        14,
        "Cluster: a primary is killed; a node without its cluster",
        ("redis CLUSTERDOWN", "SIGKILL", "SIGSTOP"),
        "redis",
        {
            "redis": """
                integration/redis/test_cluster_nodes.py::test_each_concept_names
                faults/test_redis_cluster.py::test_a_primary_is_killed
                faults/test_redis_cluster.py::test_a_primary_without_a_majority
                faults/test_redis_cluster.py::test_calls_of_a_cluster_that_is_down
            """
        },
    ),
    Row(
        15,
        "kill -9 of the client at any point",
        ("SIGKILL",),
        "redis sqlite postgresql mariadb",
        {
            "redis": """
                faults/test_retry_queue.py::test_a_killed_program
                faults/test_retry_periods.py::test_a_killed_program
                faults/test_write_behind.py::test_kills_of_voters
                faults/test_write_behind_counter.py::test_kill_9_of_writers
            """,
            "sqlite": """
                faults/test_kill9_generator.py::
                faults/test_sqlite_death.py::test_no_acknowledged
            """,
            "each": "faults/test_votes_on_servers.py::test_no_vote_is_lost_or_doubled_when_clients",
        },
    ),
    Row(
        16,
        "disk full, EIO on the file of the retry queue",
        ("disk error",),
        "redis",
        {"redis": "faults/test_failing_disks.py::test_an_add_that_the_disk"},
    ),
    Row(
        17,
        "SQLite: writes that were not synced are gone",
        ("unsynced writes gone",),
        "sqlite",
        {"sqlite": "faults/test_failing_disks.py::test_acknowledged_votes"},
    ),
    Row(
        18,
        "the reply to COMMIT is lost; the server is killed",
        ("proxy cut", "SIGKILL", "postgres 57P01"),
        "postgresql mariadb",
        {
            "each": """
                faults/test_votes_on_servers.py::test_a_commit_whose_answer
                faults/test_votes_on_servers.py::test_no_vote_is_lost_or_doubled_when_the_server
                faults/test_votes_on_servers.py::test_kills_of_everybody
                faults/test_removal_and_server_death.py::
                faults/test_failover.py::test_a_promotion_under_load_loses_and_doubles_nothing[kill
                faults/test_failover.py::test_a_commit_that_is_lost
            """,
            "mariadb": "faults/test_galera.py::test_a_node_that_is_killed",
            "postgresql": """
                integration/sql/test_postgres.py::test_a_killed_server
                integration/sql/test_postgres.py::test_a_session_that_is_terminated
            """,
        },
    ),
    Row(
        19,
        "64 writers on one slot: 40001, 40P01, 1205, 1213, BUSY",
        ("64 callers", "nodes conflict", "postgres 40001", "mariadb row waits"),
        SQL,
        {
            "each": """
                races/test_slotted_counter.py::test_64_writers
                races/test_slotted_counter.py::test_64_retries
            """,
            "mariadb": "faults/test_galera.py::test_votes_on_three",
        },
    ),
    Row(
        20,
        "the client's clock, then the server's, is an hour off",
        ("clock",),
        "redis sqlite postgresql mariadb",
        {
            "redis": """
                integration/redis/test_known_complaints.py::test_clock_skew
                faults/test_retry_queue.py::test_an_add_of_a_killed_program_stays
            """,
            "each": "faults/test_limiter_clocks.py::test_nobody_waits_longer",
        },
    ),
    Row(
        21,
        "fork with connections in use",
        ("fork",),
        "redis memory sqlite postgresql mariadb",
        {
            "redis": """
                integration/package/test_fork.py::test_a_child_has_a_redis
                integration/package/test_fork.py::test_parent_and_child
                faults/test_limiter_outages.py::test_a_child_forked
                integration/web/test_prefork.py::test_processes_forked_amid
            """,
            "memory": "integration/package/test_fork.py::test_a_child_has_a_copy",
            "sqlite": """
                integration/package/test_fork.py::test_votes_go_on
                integration/package/test_fork.py::test_children_forked
            """,
            "each": "integration/sql/test_both_servers.py::test_a_forked_child",
        },
    ),
    Row(
        22,
        "asyncio cancels, Ctrl-C, EINTR at random",
        ("SIGINT", "SIGALRM", "SIGUSR1", "cancel"),
        "redis sqlite postgresql",
        {
            "redis": """
                integration/redis/test_interrupt.py::test_ctrl_c_ends_a_call
                integration/redis/test_interrupt.py::test_an_interrupted_add
                integration/redis/test_interrupt.py::test_signals_at_random
                integration/aio/test_aio_cancel.py::test_cancelling_at_random
                integration/aio/test_aio_cancel.py::test_replies_of_cancelled
            """,
            "sqlite": """
                integration/sql/test_interrupt_sql.py::
                integration/aio/test_aio_votes.py::test_a_cancelled_call
            """,
            "postgresql": "integration/sql/test_postgres.py::test_ctrl_c",
        },
    ),
    Row(
        23,
        "a hostile server: deep nesting, huge lengths, bad RESP3",
        ("fake server",),
        "redis postgresql mariadb",
        {
            "redis": """
                faults/test_garbage_replies.py::
                integration/redis/test_counter_server_faults.py::test_a_reply_of_another_shape
            """,
            "postgresql": "hostile/test_fake_sql_servers.py::test_postgres_that_does_not_stop",
            "mariadb": "hostile/test_fake_sql_servers.py::test_mariadb_that_does_not_stop",
        },
    ),
    Row(
        24,
        "logins and addresses change; no file descriptor is left",
        ("no descriptor", "other address", "other password"),
        "redis",
        {
            "redis": """
                faults/test_redis_dialling.py::test_every_address
                integration/redis/test_redis_credentials.py::test_a_password_that_changes
                integration/package/test_file_limit.py::
            """
        },
    ),
    Row(
        25,
        "Redis is away, and 50 callers hit limits",
        ("fake server", "SIGSTOP"),
        "redis",
        {
            "redis": """
                faults/test_limiter_outages.py::test_a_hit_during_an_outage
                faults/test_limiter_false_outages.py::test_probes_of_outages
            """
        },
    ),
    Row(
        26,
        "a sync worker is killed between any two steps",
        ("SIGKILL", "worker stopped"),
        "sqlite redis",
        {
            "sqlite": """
                integration/sql/test_cached_votes.py::test_workers_killed
                races/test_cached_votes_schedules.py::test_a_worker_that_dies
            """,
            "redis": """
                faults/test_write_behind_counter.py::test_kill_9_of_workers
                faults/test_write_behind.py::test_kills_of_voters
            """,
        },
    ),
    Row(
        27,
        "a transaction pooler, two applications",
        ("pooler",),
        "postgresql",
        {"postgresql": "integration/sql/test_pgbouncer.py::"},
    ),
    Row(
        28,
        "a demoted primary keeps its connections; the name moves",
        ("demoted", "redis READONLY", "postgres 25006", "fake reply"),
        "redis postgresql mariadb",
        {
            "redis": """
                faults/test_redis_demoted.py::test_a_call_waits
                faults/test_redis_demoted.py::test_while_it_stays
                faults/test_redis_demoted.py::test_threads_that_share
                faults/test_redis_demoted.py::test_the_tasks
            """,
            "each": """
                faults/test_demoted_primary.py::test_votes_find
                faults/test_demoted_primary.py::test_slotted
                faults/test_demoted_primary.py::test_calls_go_on
                faults/test_demoted_primary.py::test_without_a_new
                faults/test_failover.py::test_a_primary_that_is_demoted
            """,
        },
    ),
    Row(
        29,
        "a balancer accepts and closes; 50 callers",
        ("fake server", "full server"),
        "redis postgresql mariadb",
        {
            "redis": """
                faults/test_redis_dialling.py::test_fifty_callers
                faults/test_redis_dialling.py::test_the_tasks_of_a_loop_dial
            """,
            "each": "integration/sql/test_full_servers.py::test_waiting_callers_dial",
        },
    ),
    Row(
        30,
        "the server refuses one element of a batch or group",
        ("refused element", "redis NOPERM", "redis WRONGTYPE"),
        "redis sqlite postgresql mariadb",
        {
            "redis": """
                races/test_combined_calls.py::test_a_key_of_another_type
                races/test_combined_calls.py::test_a_key_that_an_acl
                races/test_combined_upserts.py::test_an_upsert_with_a_denied
            """,
            "each": "faults/test_refused_votes.py::test_one_refused_vote_of_forty",
        },
    ),
    Row(
        31,
        "another's transaction holds an item's row",
        ("held row",),
        SERVERS,
        {
            "each": """
                integration/sql/test_journal_batches.py::test_a_held_item_keeps
                integration/sql/test_journal_batches.py::test_a_vote_for_a_held
                integration/sql/test_cached_votes_servers.py::test_a_held_item
            """
        },
    ),
    Row(
        32,
        "each command of each script is denied in turn",
        ("redis NOPERM", "redis ERR"),
        "redis",
        {
            "redis": """
                faults/test_script_refusals.py::test_a_user_who_may_not
                faults/test_script_refusals.py::test_each_command
            """
        },
    ),
    Row(
        33,
        "pushes, attributes, endless lines, replies too many",
        ("fake server",),
        "redis",
        {"redis": "hostile/test_unwanted_replies.py::"},
    ),
    Row(
        34,
        "processes of one thread; one is killed in mid-fold",
        ("SIGKILL", "killed in mid-fold", "postgres 57P01"),
        "postgresql mariadb",
        {
            "each": """
                faults/test_fold_kills.py::
                races/test_journal_orders.py::test_a_fold_that_is_killed
            """
        },
    ),
    Row(
        35,
        "a comma locale, a subinterpreter, unfinished objects",
        ("comma locale", "unfinished object", "subinterpreter"),
        "memory redis",
        {
            "redis": "integration/package/test_comma_locale.py::",
            "memory": """
                hostile/test_unfinished.py::test_every_use
                hostile/test_unfinished.py::test_import_in
            """,
        },
    ),
    Row(
        36,
        "another program writes the vote table",
        ("outside write",),
        SQL,
        {
            "each": """
                integration/sql/test_outside_writes.py::test_writes_of_others
                integration/sql/test_outside_storm.py::
            """,
        },
    ),
    Row(
        37,
        "a second SQLite library opens and closes the file",
        ("second library",),
        "sqlite",
        {
            "sqlite": """
                faults/test_two_sqlites.py::test_what_was_acknowledged
                faults/test_two_sqlites.py::test_three_processes
            """
        },
    ),
    Row(
        38,
        "the store's clock steps by an hour",
        ("clock",),
        "redis sqlite postgresql mariadb",
        {
            "redis": """
                faults/test_limiter_clocks.py::test_a_reservation_is_held
                faults/test_limiter_clocks.py::test_a_place_is_held
                faults/test_retry_clocks.py::test_adds_that_were_never
                faults/test_retry_clocks.py::test_adds_go_on
                faults/test_retry_clocks.py::test_a_memory_is
            """,
            "each": """
                faults/test_limiter_clocks.py::test_whoever_asks_first
                faults/test_limiter_clocks.py::test_a_block_lasts
                integration/sql/test_votes_folds.py::test_a_servers_clock
            """,
        },
    ),
    Row(
        39,
        "settings of the server that change what SQL means",
        ("server setting",),
        SERVERS,
        {
            "each": "integration/sql/test_server_settings.py::",
            "mariadb": "integration/sql/test_mariadb_journal.py::test_votes_count_on_servers",
            "postgresql": "integration/sql/test_postgres_batches.py::test_sessions_of_another",
        },
    ),
    Row(
        40,
        "the deadline of a batch of 100,000 passes",
        ("deadline passed", "SIGSTOP"),
        "redis sqlite postgresql",
        {
            "redis": "integration/aio/test_aio_bounds.py::test_100_000_calls",
            "each": "contract/test_votes_deadlines.py::test_a_batch",
        },
        but="healthy",
    ),
    Row(
        41,
        "an erased user's votes wait in a stream",
        ("SIGKILL",),
        "redis",
        {
            "redis": """
                faults/test_erased_stays.py::test_what_was_erased
                faults/test_erased_stays.py::test_a_page_that_arrives_late
            """
        },
    ),
    Row(
        42,
        "a primary that was paused and replaced goes on",
        ("SIGSTOP", "fake server"),
        "redis",
        {
            "redis": """
                faults/test_sentinel_failover.py::test_a_primary_that_was_paused
                faults/test_sentinel_failover.py::test_what_lies_in_the_sockets
                faults/test_redis_cluster.py::test_a_paused_primary
                faults/test_redis_cluster.py::test_an_idle_client
            """
        },
    ),
)

BACKENDS = {
    "memory": "memory",
    "valkey": "redis",
    "redis": "redis",
    "sqlite": "sqlite",
    "postgres": "postgresql",
    "maria": "mariadb",
}


@cache
def _beginnings() -> tuple[tuple[str, Row, str], ...]:
    return tuple(
        (f"tests/{name}", row, backend)
        for row in ROWS
        for backend, names in row.tests.items()
        for name in names.split()
    )


def rows_of(test: str) -> tuple[Row, ...]:
    """The rows whose fault the test injects, by its node id."""
    found = {row.number: row for name, row, _ in _beginnings() if test.startswith(name)}
    return tuple(row for row in found.values() if not (row.but and re.search(row.but, test)))


def backend_of(test: str, row: Row) -> str:
    """ "mysql" is beside those that a row names: where MySQL is here, it runs MariaDB's tests."""
    if test.endswith(ON_MYSQL):
        return "mysql"
    for name, of, backend in _beginnings():
        if of is row and test.startswith(name) and backend != "each":
            return backend
    ids = test.partition("[")[2] or test
    for word, backend in BACKENDS.items():
        if word in ids:
            return backend
    return "?"
