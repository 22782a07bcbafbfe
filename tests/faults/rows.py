"""The faults that hotcount is held to, and the tests that inject each of them.

`make faults` runs a row's tests on all its databases and stores and prints what passed; `make test`
runs the same tests among the others. A test during which no proof of its row was counted is void
(tests/support/fired.py). A row without a test for one of its backends has not passed.

A row of the table is a number and a fault, and below them:
    on      the backends, of which every one has a test
    proof   one of them is counted in each test: the fault took place
    but     a pattern of tests that inject nothing, or run for hours
    redis   a test of that backend, by the beginning of its path and name under tests/; "each"
            stands for tests whose ids name the backend
"""

import re
from dataclasses import dataclass, field
from functools import cache

from tests.support.fired import ON_MYSQL

TABLE = r"""
1 a proxy drops the reply at every command boundary
    on      redis, postgresql, mariadb
    proof   proxy cut, fake server
    redis       faults/test_redis_cuts.py::test_a_pipeline_cut
    redis       faults/test_redis_script_cuts.py::test_an_add_with_an_op_id_whose
    redis       faults/test_rebuild_faults.py::test_a_publication_whose_answer
    redis       faults/test_reservations.py::test_a_reserve_whose_reply
    redis       faults/test_concurrency_limit.py::test_an_acquire_whose_reply
    postgresql  integration/sql/test_postgres.py::test_wherever_the_answers_end
    each        faults/test_votes_on_servers.py::test_a_commit_whose_answer
2 the connection is cut after every byte of a pipeline
    on      redis, postgresql, mariadb
    proof   proxy cut, fake server
    redis       faults/test_redis_cuts.py::test_a_pipeline_cut
    redis       faults/test_redis_script_cuts.py::test_a_batch_of_script_calls
    redis       faults/test_redis_script_cuts.py::test_script_calls_of_many_threads
    redis       faults/test_retry_queue.py::test_a_cut_at_any_byte
    redis       faults/test_retry_periods.py::test_a_cut_at_any_byte
    redis       faults/test_write_behind_counter.py::test_a_cut_at_any_byte
    redis       faults/test_rebuild_faults.py::test_a_chunk_that_is_cut
    postgresql  hostile/test_fake_sql_servers.py::test_postgres_that_hangs_up
    mariadb     hostile/test_fake_sql_servers.py::test_mariadb_that_hangs_up
3 a black hole swallows what is sent or answered
    on      redis, postgresql, mariadb
    proof   proxy hole, SIGSTOP
    redis       faults/test_redis_cuts.py::test_a_black_hole
    redis       faults/test_silent_server.py::test_a_black_hole_is_given_up
    redis       faults/test_silent_server.py::test_the_first_success_comes
    redis       faults/test_silent_server.py::test_a_loop_gives_a_black_hole
    postgresql  integration/sql/test_postgres.py::test_a_server_that_does_not_answer
    mariadb     integration/sql/test_mariadb.py::test_a_stopped_server_costs
    each        integration/sql/test_idle_connections.py::test_connections_that_a_firewall
    each        faults/test_failover.py::test_a_promotion_under_load_loses_and_doubles_nothing[black
4 connections are reset every 200 ms
    on      redis, postgresql, mariadb
    proof   proxy reset
    redis       faults/test_redis_cuts.py::test_resets_under_load
    each        faults/test_slow_networks.py::test_connections_that_are_reset
5 slices of one byte, latency of 200 +- 200 ms
    on      redis, postgresql, mariadb
    proof   proxy slice, proxy delay
    redis       faults/test_redis_cuts.py::test_replies_in_slices
    each        faults/test_slow_networks.py::test_a_network_that_is_slow
6 kill -9 of Redis; AOF always, everysec, off
    on      redis, sqlite
    proof   SIGKILL
    redis       faults/test_write_behind.py::test_kills_of_a_redis_that_syncs
    redis       faults/test_write_behind_counter.py::test_a_redis_killed_without
    redis       faults/test_retry_queue.py::test_a_server_that_kept_its_data
    redis       faults/test_retry_failover.py::test_an_add_that_was_replicated
    redis       faults/test_write_behind.py::test_a_storm
    sqlite      integration/sql/test_cached_votes.py::test_votes_go_on_while_redis
7 Redis stands still (SIGSTOP) for up to 30 s
    on      redis
    proof   SIGSTOP
    redis       faults/test_silent_server.py::test_a_server_that_stands_still_for_30
    redis       faults/test_retry_queue.py::test_a_paused_server
    redis       faults/test_write_behind_counter.py::test_an_add_to_a_paused
    redis       faults/test_limiter_outages.py::test_the_policy_answers_until_redis_does[paused
8 OOM, MISCONF, LOADING, READONLY, NOPERM
    on      redis
    proof   redis OOM, redis READONLY, redis NOPERM, redis LOADING, fake reply
    but     out_of_memory_has\w*\[remove\]
    redis       faults/test_redis_refusals.py::test_a_replica_has
    redis       faults/test_redis_refusals.py::test_a_server_out_of_memory
    redis       faults/test_redis_refusals.py::test_a_server_that_loads
    redis       faults/test_redis_refusals.py::test_a_user_who_may_run
    redis       faults/test_op_id_refusals.py::test_a_server_that_is_out_of_memory
    redis       faults/test_limiter_outages.py::test_a_server_that_is_not_ready
    redis       integration/redis/test_counter_server_faults.py::test_a_replica_refuses
    redis       integration/redis/test_counter_server_faults.py::test_a_server_without_memory
    redis       integration/redis/test_counter_server_faults.py::test_a_command_that_the_acl
9 allkeys-lru evicts counters and copies of counts
    on      redis
    proof   evicted
    redis       faults/test_evictions.py::
    redis       faults/test_rebuild_faults.py::test_a_server_that_evicts
10 SCRIPT FLUSH ten times a second
    on      redis
    proof   redis NOSCRIPT
    redis       faults/test_redis_refusals.py::test_scripts_flushed_ten_times
    redis       races/test_combined_calls.py::test_scripts_that_are_flushed
    redis       races/test_combined_upserts.py::test_upserts_survive_flushed
    redis       faults/test_rebuild_faults.py::test_flushed_scripts
11 Sentinel: the primary is killed or replaced
    on      redis
    proof   SIGKILL, failover
    redis       faults/test_sentinel_failover.py::test_adds_go_on_at_the_new_primary[kill
    redis       faults/test_sentinel_failover.py::test_votes_are_exact_after
12 Sentinel: the client is still at the old primary
    on      redis
    proof   SIGSTOP, fake server
    redis       faults/test_sentinel_failover.py::test_a_primary_that_was_paused
13 Cluster: slots move (MOVED, ASK, TRYAGAIN), or half-way
    on      redis
    proof   fake reply, redis MOVED, redis ASK, redis TRYAGAIN, migration cancelled
    redis       integration/redis/test_cluster_nodes.py::test_words_of_nodes
    redis       faults/test_redis_cluster.py::test_slots_move
    redis       faults/test_redis_cluster.py::test_valkey_moves_slots
    redis       faults/test_redis_cluster.py::test_valkey_moves_no_slot
    redis       faults/test_redis_cluster.py::test_a_slot_that_has_half
    redis       faults/test_redis_cluster.py::test_a_reshard_that_was_interrupted
14 Cluster: a primary is killed; a node without its cluster
    on      redis
    proof   redis CLUSTERDOWN, SIGKILL, SIGSTOP
    redis       integration/redis/test_cluster_nodes.py::test_each_concept_names
    redis       faults/test_redis_cluster.py::test_a_primary_is_killed
    redis       faults/test_redis_cluster.py::test_a_primary_without_a_majority
    redis       faults/test_redis_cluster.py::test_calls_of_a_cluster_that_is_down
15 kill -9 of the client at any point
    on      redis, sqlite, postgresql, mariadb
    proof   SIGKILL
    redis       faults/test_retry_queue.py::test_a_killed_program
    redis       faults/test_retry_periods.py::test_a_killed_program
    redis       faults/test_write_behind.py::test_kills_of_voters
    redis       faults/test_write_behind_counter.py::test_kill_9_of_writers
    sqlite      faults/test_kill9_generator.py::
    sqlite      faults/test_sqlite_death.py::test_no_acknowledged
    each        faults/test_votes_on_servers.py::test_no_vote_is_lost_or_doubled_when_clients
16 disk full, EIO on the file of the retry queue
    on      redis
    proof   disk error
    redis       faults/test_failing_disks.py::test_an_add_that_the_disk
17 SQLite: writes that were not synced are gone
    on      sqlite
    proof   unsynced writes gone
    sqlite      faults/test_failing_disks.py::test_acknowledged_votes
18 the reply to COMMIT is lost; the server is killed
    on      postgresql, mariadb
    proof   proxy cut, SIGKILL, postgres 57P01
    each        faults/test_votes_on_servers.py::test_a_commit_whose_answer
    each        faults/test_votes_on_servers.py::test_no_vote_is_lost_or_doubled_when_the_server
    each        faults/test_votes_on_servers.py::test_kills_of_everybody
    each        faults/test_removal_and_server_death.py::
    each        faults/test_failover.py::test_a_promotion_under_load_loses_and_doubles_nothing[kill
    each        faults/test_failover.py::test_a_commit_that_is_lost
    mariadb     faults/test_galera.py::test_a_node_that_is_killed
    postgresql  integration/sql/test_postgres.py::test_a_session_that_is_terminated
19 64 writers on one slot: 40001, 40P01, 1205, 1213, BUSY
    on      sqlite, postgresql, mariadb
    proof   64 callers, nodes conflict, postgres 40001, mariadb row waits
    each        races/test_slotted_counter.py::test_64_writers
    each        races/test_slotted_counter.py::test_64_retries
    mariadb     faults/test_galera.py::test_votes_on_three
20 the client's clock, then the server's, is an hour off
    on      redis, sqlite, postgresql, mariadb
    proof   clock
    redis       integration/redis/test_known_complaints.py::test_clock_skew
    redis       faults/test_retry_queue.py::test_an_add_of_a_killed_program_stays
    each        faults/test_limiter_clocks.py::test_nobody_waits_longer
21 fork with connections in use
    on      redis, memory, sqlite, postgresql, mariadb
    proof   fork
    redis       integration/package/test_fork.py::test_a_child_has_a_redis
    redis       integration/package/test_fork.py::test_parent_and_child
    redis       faults/test_limiter_outages.py::test_a_child_forked
    redis       integration/web/test_prefork.py::test_processes_forked_amid
    memory      integration/package/test_fork.py::test_a_child_has_a_copy
    sqlite      integration/package/test_fork.py::test_votes_go_on
    sqlite      integration/package/test_fork.py::test_children_forked
    each        integration/sql/test_both_servers.py::test_a_forked_child
22 asyncio cancels, Ctrl-C, EINTR at random
    on      redis, sqlite, postgresql
    proof   SIGINT, SIGALRM, SIGUSR1, cancel
    redis       integration/redis/test_interrupt.py::test_ctrl_c_ends_a_call
    redis       integration/redis/test_interrupt.py::test_an_interrupted_add
    redis       integration/redis/test_interrupt.py::test_signals_at_random
    redis       integration/aio/test_aio_cancel.py::test_cancelling_at_random
    redis       integration/aio/test_aio_cancel.py::test_replies_of_cancelled
    sqlite      integration/sql/test_interrupt_sql.py::
    sqlite      integration/aio/test_aio_votes.py::test_a_cancelled_call
    postgresql  integration/sql/test_postgres.py::test_ctrl_c
23 a hostile server: deep nesting, huge lengths, bad RESP3
    on      redis, postgresql, mariadb
    proof   fake server
    redis       faults/test_garbage_replies.py::
    redis       integration/redis/test_counter_server_faults.py::test_a_reply_of_another_shape
    postgresql  hostile/test_fake_sql_servers.py::test_postgres_that_does_not_stop
    mariadb     hostile/test_fake_sql_servers.py::test_mariadb_that_does_not_stop
24 logins and addresses change; no file descriptor is left
    on      redis
    proof   no descriptor, other address, other password
    redis       faults/test_redis_dialling.py::test_every_address
    redis       integration/redis/test_redis_credentials.py::test_a_password_that_changes
    redis       integration/package/test_file_limit.py::
25 Redis is away, and 50 callers hit limits
    on      redis
    proof   fake server, SIGSTOP
    redis       faults/test_limiter_outages.py::test_a_hit_during_an_outage
    redis       faults/test_limiter_false_outages.py::test_probes_of_outages
26 a sync worker is killed between any two steps
    on      sqlite, redis
    proof   SIGKILL, worker stopped
    sqlite      integration/sql/test_cached_votes.py::test_workers_killed
    sqlite      races/test_cached_votes_schedules.py::test_a_worker_that_dies
    redis       faults/test_write_behind_counter.py::test_kill_9_of_workers
    redis       faults/test_write_behind.py::test_kills_of_voters
27 a transaction pooler, two applications
    on      postgresql
    proof   pooler
    postgresql  integration/sql/test_pgbouncer.py::
28 a demoted primary keeps its connections; the name moves
    on      redis, postgresql, mariadb
    proof   demoted, redis READONLY, postgres 25006, fake reply
    redis       faults/test_redis_demoted.py::test_a_call_waits
    redis       faults/test_redis_demoted.py::test_while_it_stays
    redis       faults/test_redis_demoted.py::test_threads_that_share
    redis       faults/test_redis_demoted.py::test_the_tasks
    each        faults/test_demoted_primary.py::test_votes_find
    each        faults/test_demoted_primary.py::test_slotted
    each        faults/test_demoted_primary.py::test_calls_go_on
    each        faults/test_demoted_primary.py::test_without_a_new
    each        faults/test_failover.py::test_a_primary_that_is_demoted
29 a balancer accepts and closes; 50 callers
    on      redis, postgresql, mariadb
    proof   fake server, full server
    redis       faults/test_redis_dialling.py::test_fifty_callers
    redis       faults/test_redis_dialling.py::test_the_tasks_of_a_loop_dial
    each        integration/sql/test_full_servers.py::test_waiting_callers_dial
30 the server refuses one element of a batch or group
    on      redis, sqlite, postgresql, mariadb
    proof   refused element, redis NOPERM, redis WRONGTYPE
    redis       races/test_combined_calls.py::test_a_key_of_another_type
    redis       races/test_combined_calls.py::test_a_key_that_an_acl
    redis       races/test_combined_upserts.py::test_an_upsert_with_a_denied
    each        faults/test_refused_votes.py::test_one_refused_vote_of_forty
31 another's transaction holds an item's row
    on      postgresql, mariadb
    proof   held row
    each        integration/sql/test_journal_batches.py::test_a_held_item_keeps
    each        integration/sql/test_journal_batches.py::test_a_vote_for_a_held
    each        integration/sql/test_cached_votes_servers.py::test_a_held_item
32 each command of each script is denied in turn
    on      redis
    proof   redis NOPERM, redis ERR
    redis       faults/test_script_refusals.py::test_a_user_who_may_not
    redis       faults/test_script_refusals.py::test_each_command
33 pushes, attributes, endless lines, replies too many
    on      redis
    proof   fake server
    redis       hostile/test_unwanted_replies.py::
34 processes of one thread; one is killed in mid-fold
    on      postgresql, mariadb
    proof   SIGKILL, killed in mid-fold, postgres 57P01
    each        faults/test_fold_kills.py::
    each        races/test_journal_orders.py::test_a_fold_that_is_killed
35 a comma locale, a subinterpreter, unfinished objects
    on      memory, redis
    proof   comma locale, unfinished object, subinterpreter
    redis       integration/package/test_comma_locale.py::
    memory      hostile/test_unfinished.py::test_every_use
    memory      hostile/test_unfinished.py::test_import_in
36 another program writes the vote table
    on      sqlite, postgresql, mariadb
    proof   outside write
    each        integration/sql/test_outside_writes.py::test_writes_of_others
    each        integration/sql/test_outside_storm.py::
37 a second SQLite library opens and closes the file
    on      sqlite
    proof   second library
    sqlite      faults/test_two_sqlites.py::test_what_was_acknowledged
    sqlite      faults/test_two_sqlites.py::test_three_processes
38 the store's clock steps by an hour
    on      redis, sqlite, postgresql, mariadb
    proof   clock
    redis       faults/test_limiter_clocks.py::test_a_reservation_is_held
    redis       faults/test_limiter_clocks.py::test_a_place_is_held
    redis       faults/test_retry_clocks.py::test_adds_that_were_never
    redis       faults/test_retry_clocks.py::test_adds_go_on
    redis       faults/test_retry_clocks.py::test_a_memory_is
    each        faults/test_limiter_clocks.py::test_whoever_asks_first
    each        faults/test_limiter_clocks.py::test_a_block_lasts
    each        integration/sql/test_votes_folds.py::test_a_servers_clock
39 settings of the server that change what SQL means
    on      postgresql, mariadb
    proof   server setting
    each        integration/sql/test_server_settings.py::
    mariadb     integration/sql/test_mariadb_journal.py::test_votes_count_on_servers
    postgresql  integration/sql/test_postgres_batches.py::test_sessions_of_another
40 the deadline of a batch of 100,000 passes
    on      redis, sqlite, postgresql
    proof   deadline passed, SIGSTOP
    but     healthy
    redis       integration/aio/test_aio_bounds.py::test_100_000_calls
    each        contract/test_votes_deadlines.py::test_a_batch
41 an erased user's votes wait in a stream
    on      redis
    proof   SIGKILL
    redis       faults/test_erased_stays.py::test_what_was_erased
    redis       faults/test_erased_stays.py::test_a_page_that_arrives_late
42 a primary that was paused and replaced goes on
    on      redis
    proof   SIGSTOP, fake server
    redis       faults/test_sentinel_failover.py::test_a_primary_that_was_paused
    redis       faults/test_sentinel_failover.py::test_what_lies_in_the_sockets
    redis       faults/test_redis_cluster.py::test_a_paused_primary
    redis       faults/test_redis_cluster.py::test_an_idle_client
    redis       faults/test_cluster_late_lanes.py::test_no_lane_believes
"""


@dataclass
class Row:
    """A fault; its tests are names apart by spaces, for each backend or "each"."""

    number: int
    what: str
    proofs: tuple[str, ...] = ()
    backends: str = ""
    tests: dict[str, str] = field(default_factory=dict)
    but: str = ""

    def read(self, word: str, value: str) -> None:
        if word == "on":
            self.backends = value.replace(",", "")
        elif word == "proof":
            self.proofs = tuple(value.split(", "))
        elif word == "but":
            self.but = value
        else:
            self.tests[word] = f"{self.tests.get(word, '')} {value}".strip()


def rows_in(table: str) -> tuple[Row, ...]:
    rows: list[Row] = []
    for line in table.strip().splitlines():
        word, value = line.split(maxsplit=1)
        if line.startswith(" "):
            rows[-1].read(word, value)
        else:
            rows.append(Row(int(word), value))
    return tuple(rows)


ROWS = rows_in(TABLE)

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
