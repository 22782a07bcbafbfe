-- Sessions on PostgreSQL: how a new one is set up, and how the server is set.

-- name: process
-- The process that serves the session. The server reports this number to its client, for cancel
-- requests; a pooler reports a number of its own. Only if ?1, the reported number, is the server's,
-- the statement also sets up the session, because a pooler would pass the settings on to others:
-- * Warnings are reported (take_notice).
-- * jit = off: JIT compilation took 0.24 s for a batch of votes of 0.01 s. An operator's
--   enable_sort = off would trigger it, because each sort then has a cost of 10^10.
-- * A transaction that is idle for 5 s is ended, as on MariaDB: if its process was stopped, its
--   locks would block all others. A limit that the operator has set stays.
SELECT
    pg_backend_pid(),
    CASE
        WHEN pg_backend_pid() = CAST(?1 AS integer)
        THEN
            set_config('jit', 'off', FALSE)
            || CASE current_setting('idle_in_transaction_session_timeout')
                WHEN '0' THEN set_config('idle_in_transaction_session_timeout', '5s', FALSE)
                ELSE ''
            END
            || CASE
                WHEN {hides_warnings} THEN set_config('client_min_messages', 'warning', FALSE)
                ELSE ''
            END
    END

-- name: host
-- Of one of several hosts: whether the host is read-only, its cluster, the session's name, and of a
-- primary its timeline, in hexadecimal: a promotion begins a new timeline. The name consists of the
-- server's start time and of the process with its own start time: a server that was restarted, or
-- is another one, has no session of that name.
SELECT
    current_setting('transaction_read_only') = 'on',
    system_identifier,
    concat_ws(
        ' ', extract(epoch FROM pg_postmaster_start_time()), pg_backend_pid(),
        (
            SELECT extract(epoch FROM backend_start)
            FROM pg_stat_activity
            WHERE pid = pg_backend_pid()
        )
    ),
    CASE
        WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8)
    END
FROM pg_control_system()

-- name: has_session
-- Whether this server has the session of that name: ?1.
SELECT EXISTS (
    SELECT
    FROM pg_stat_activity
    WHERE
        concat_ws(
            ' ', extract(epoch FROM pg_postmaster_start_time()), pid,
            extract(epoch FROM backend_start)
        ) = ?1
)

-- name: empty_commit
-- Writes nothing to the log and commits. It sets the level of messages itself, whatever the
-- session's settings are: a second signal of our own cancel may end this wait too.
SELECT {nothing}

-- name: empty_commit_if_hidden
-- empty_commit, run only where the session's settings hide warnings.
SELECT CASE WHEN {hides_warnings} THEN {nothing} END

-- name: nothing
set_config('client_min_messages', 'warning', true)
|| pg_logical_emit_message(true, 'hotcount', '')::text

-- name: durability
-- The values for this session. SHOW would return one setting a statement.
SELECT name, setting
FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')

-- name: settings
SELECT name, setting
FROM pg_settings
WHERE name IN (
    'server_version', 'server_version_num', 'fsync', 'full_page_writes', 'synchronous_commit',
    'synchronous_standby_names', 'default_transaction_isolation', 'max_connections',
    'superuser_reserved_connections', 'default_transaction_read_only'
)

-- name: in_recovery
SELECT 'in_recovery', CAST(pg_is_in_recovery() AS text)

-- name: tls
SELECT 'tls', CAST(ssl AS text)
FROM pg_stat_ssl
WHERE pid = pg_backend_pid()

-- name: sessions
SELECT 'sessions', CAST(count(*) AS text)
FROM pg_stat_activity
WHERE backend_type = 'client backend'

-- name: replicas
SELECT 'replicas', CAST(count(*) AS text)
FROM pg_stat_replication

-- name: synchronous_replicas
SELECT 'synchronous_replicas', CAST(count(*) AS text)
FROM pg_stat_replication
WHERE sync_state IN ('sync', 'quorum')

-- name: replica_lag
SELECT 'replica_lag_seconds', CAST(max(extract(epoch FROM replay_lag)) AS text)
FROM pg_stat_replication

-- name: hides_warnings
-- Whether the server sends this session's client no warnings.
current_setting('client_min_messages') IN ('error', 'fatal', 'panic')
