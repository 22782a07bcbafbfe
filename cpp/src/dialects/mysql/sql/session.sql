-- The settings and queries of a MariaDB or MySQL session.

-- name: set_up
-- Sets every setting that changes the result of a statement. Otherwise the server, init_connect or
-- the login would choose them.
--
--   @hotcount_own         the triggers of triggers.sql recognize the session by it
--   sql_mode              strings and names as written; a value that does not fit is an error
--   ..._checks            foreign and unique keys are checked
--   completion_type       COMMIT neither begins a transaction nor ends the session
--   sql_select_limit      a SELECT returns all its rows
--   max_sort_length       whole keys are sorted
--   subquery_to_derived   MySQL refuses subqueries with locks (3973) while it is on
--   sql_if_exists         MariaDB would add IF EXISTS to statements
--
-- The server decides whether a session may write. MariaDB and MySQL have different names for the
-- settings of access and isolation.
SET NAMES utf8mb4,
    @hotcount_own = 1,
    SESSION sql_mode =
        'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_ENGINE_SUBSTITUTION,STRICT_ALL_TABLES',
    foreign_key_checks = 1,
    unique_checks = 1,
    completion_type = 0,
    sql_select_limit = 18446744073709551615,
    sql_big_selects = 1,
    sql_buffer_result = 0,
    sql_safe_updates = 0,
    max_sort_length = 2000,
    /*!80021 optimizer_switch = 'subquery_to_derived=off', */
    /*M! sql_if_exists = 0, */
--if reads
    autocommit = 1,
    /*M! SESSION tx_read_only = 1, SESSION tx_isolation = */
    /*!80000 SESSION transaction_read_only = 1, SESSION transaction_isolation = */
    'REPEATABLE-READ',
--else
    autocommit = 0,
    /*M! SESSION tx_isolation = */ /*!80000 SESSION transaction_isolation = */ 'READ-COMMITTED',
--end
    {patience}

-- name: wait_for_cluster
-- One address may lead to several nodes of a Galera cluster, and a commit at one node arrives at
-- the others a moment later. So the first statement of a transaction waits until its node has all
-- commits (1 reads, 2 UPDATE and DELETE, 4 INSERT): otherwise a vote that was retracted at another
-- node would be found unchanged.
SET SESSION wsrep_sync_wait = @@SESSION.wsrep_sync_wait | 7

-- name: in_cluster
-- 1 if the server is a node of a Galera cluster: MariaDB, or MySQL in Percona XtraDB Cluster.
-- Builds without Galera have no wsrep_on.
(
    SELECT COUNT(*)
    FROM /*M! information_schema.GLOBAL_VARIABLES */
        /*!80000 performance_schema.session_variables */
    WHERE VARIABLE_NAME = 'WSREP_ON' AND VARIABLE_VALUE = 'ON'
)

-- name: is_in_cluster
SELECT {in_cluster}

-- name: identify
-- A name that no other server has, whether the server only reads, its version, 1 on MariaDB, and
-- whether it is a node of a Galera cluster. read_only is a number, and from MariaDB 12 on a word.
SELECT
    CONCAT_WS(' ', @@hostname, @@port, @@datadir, @@pid_file),
    CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF'),
    VERSION(),
    0 /*M! + 1 */,
    {in_cluster}
LIMIT 1

-- name: is_ready
-- Whether a node of Galera is in its cluster's primary component and has joined it, its address in
-- the cluster, the addresses of all nodes that it sees, separated by commas, and the number of that
-- membership. A node that is not ready answers questions about itself, and refuses every statement
-- on a table.
SELECT
    COALESCE(MAX(VARIABLE_NAME = 'WSREP_READY' AND VARIABLE_VALUE = 'ON'), 0),
    SUBSTRING_INDEX(
        SUBSTRING_INDEX(
            MAX(IF(VARIABLE_NAME = 'WSREP_INCOMING_ADDRESSES', VARIABLE_VALUE, '')),
            ',',
            1 + MAX(IF(VARIABLE_NAME = 'WSREP_LOCAL_INDEX', CAST(VARIABLE_VALUE AS SIGNED), 0))),
        ',',
        -1),
    MAX(IF(VARIABLE_NAME = 'WSREP_INCOMING_ADDRESSES', VARIABLE_VALUE, '')),
    MAX(IF(VARIABLE_NAME = 'WSREP_CLUSTER_CONF_ID', VARIABLE_VALUE, ''))
FROM /*M! information_schema.GLOBAL_STATUS */ /*!80000 performance_schema.global_status */
WHERE
    VARIABLE_NAME IN (
        'WSREP_READY', 'WSREP_INCOMING_ADDRESSES', 'WSREP_LOCAL_INDEX', 'WSREP_CLUSTER_CONF_ID'
    )

-- name: has_session
-- Whether session ?1 may still commit; ?1 is 0 for a session of another server. After a restart the
-- present session may have the lost one's number, so it is left out. Not used in a Galera cluster,
-- where a commit of another node may still arrive.
SELECT
    (SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = ?1 AND ID <> CONNECTION_ID())
LIMIT 1

-- name: part_that_runs
-- Of session ?1: the number of the query that runs, whether the query is the COMMIT of a compound
-- statement, and whether the session is between two parts of one.
SELECT QUERY_ID, INFO = 'COMMIT', INFO LIKE 'BEGIN NOT ATOMIC%'
FROM information_schema.PROCESSLIST
WHERE ID = ?1
LIMIT 1

-- name: durability
-- The settings that can weaken the durability of a commit. A variable that the server does not
-- have is no error in SHOW.
SHOW GLOBAL VARIABLES
WHERE Variable_name IN
    ('innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'log_bin', 'sync_binlog')

-- name: settings_of_server
SHOW GLOBAL VARIABLES
WHERE Variable_name IN (
    'version', 'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'log_bin', 'sync_binlog',
    'max_connections', 'read_only', 'wsrep_on', 'wsrep_sst_method')

-- name: state_of_galera
-- No rows if the server reports no state of Galera.
SHOW GLOBAL STATUS
WHERE Variable_name IN (
    'wsrep_ready', 'wsrep_cluster_status', 'wsrep_cluster_size', 'wsrep_local_state_comment')

-- name: settings_of_session
SHOW SESSION VARIABLES
WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')
