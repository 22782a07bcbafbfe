"""No setting of a server, a role or a login makes a result wrong.

Every variable that the server lists is set for new sessions, to several values that are not its
own. A play whose results are known must come out right, or be refused with an error that has a
type. This file has what is refused, with the reason: another refusal fails the test. So does a
variable for which the server lists no values, unless its name is here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.fired import fired
from tests.support.mysql_server import is_mysql, new_server
from tests.support.mysql_settings import MysqlSettings
from tests.support.postgres_settings import PostgresSettings
from tests.support.servers import PostgresServer
from tests.support.settings_walk import Report, Server, Walk, check

# A walk takes up to two minutes, longer on a busy machine.
pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.timeout(2400)]

# By variable, what the error says.
REFUSED_BY_BOTH = {
    # Whoever sets them wants no writes; a demoted primary sets them too.
    "read_only": "--read-only option",
    # What the server gives to all clients, or to one.
    "max_allowed_packet": "max_allowed_packet|Server has gone away",
    "max_prepared_stmt_count": "max_prepared_stmt_count bounds",
    # In the application's own session, which asks about that many rows.
    "max_join_size": r"pymysql.* 1104|\(1104, ",
    # The application's own session ends with a COMMIT or ROLLBACK, which it may or may not notice.
    "completion_type": "engine|pymysql",
    # SQLAlchemy itself cannot connect where no SELECT has rows.
    "sql_select_limit": "engine: TypeError",
}
REFUSED_BY_MARIADB = REFUSED_BY_BOTH | {
    "tx_read_only": "READ ONLY transaction",
    "max_statement_time": "max_statement_time",
    "max_session_mem_used": "max-session-mem-used|Lost connection|gone away",
    "sort_buffer_size": "Out of sort memory",
    "tmp_disk_table_size": "is full",
    # Tables of InnoDB, and of no other engine.
    "enforce_storage_engine": "NO_ENGINE_SUBSTITUTION",
    # Pages are compressed in a file for each table, which this server does without.
    "innodb_compression_default": "Wrong create options",
}
REFUSED_BY_MYSQL = REFUSED_BY_BOTH | {
    "max_connections": "1040",
    "max_user_connections": "1203",
    "max_execution_time": "max_execution_time|3024",
    # A COMMIT may wait for it, and is unknown then.
    "super_read_only": "--read-only option|before COMMIT was answered",
    "transaction_read_only": "READ ONLY transaction",
    "connection_memory_limit": "Connection memory limit",
    "offline_mode": "3032",
    # MySQL tells pymysql that the application's own session is in AUTOCOMMIT, although it is not.
    "autocommit": "AUTOCOMMIT",
}
REFUSED_BY_POSTGRES = {
    "default_transaction_read_only": "read-only transaction",
    "search_path": "3F000|42501",
    "default_tablespace": "pg_global",
    # Operators' limits. PostgreSQL itself, which the test reads with SQLAlchemy, writes a blank.
    "statement_timeout": "statement[_ ]timeout",
    "transaction_timeout": "transaction_timeout",
    "idle_in_transaction_session_timeout": "idle-in-transaction timeout|IdleInT|server closed",
    "idle_session_timeout": "idle-session timeout|IdleSession|server closed the connection",
    # Any error ends the session: also that of a vote which is refused.
    "exit_on_error": "terminating|connection was lost|server closed",
    # The login is another one then.
    "db_user_namespace": "app@postgres",
}

# A millisecond is enough at times.
SOMETIMES = {
    *("completion_type", "max_execution_time", "max_statement_time", "statement_timeout"),
    *("idle_in_transaction_session_timeout", "idle_session_timeout"),
}
# Together, two caches of MySQL's are too small to keep a statement prepared; and a safe update of
# the application's own session is refused if there is no memory to look for its key.
ALONE = {"table_open_cache", "table_definition_cache", "sql_safe_updates"}

# Patterns of names, and why they are left out.
LEFT_OUT_OF_MYSQL = {
    "thread_pool_.*": "a server with a thread for each connection has no pool",
    "innodb_max_purge_lag_wait": "SET itself waits, for ever if it is 0",
    "partial_revokes": "the login's rights, which a pattern of names grants, are none then",
    "innodb_(buffer_pool|redo|log).*|innodb_.*(encrypt|now|abort).*": "files and memory",
    "(key_buffer|host_cache)_size|key_cache_.*": "MyISAM's memory, and names of hosts",
}
LEFT_OUT_OF_POSTGRES = {
    "(pre|post)_auth_delay": "a login takes that long",
    "temp_file_limit": "an operator's limit, which sorts meet only beside a small work_mem",
}

# Patterns of variables. Some take names of files, servers, tables and plugins, which no server
# lists; of the others these servers refuse every value but the one that they have.
WITHOUT_VALUE = [
    ".*_(file|files|dir|tmpdir|path|command|library|libraries|destination|directory|filename)",
    "(replicate|wsrep|gtid|innodb_monitor|innodb_ft|ssl|tls|admin|log|recovery|primary|krb)_.*",
    "init_(slave|replica)|ft_boolean_syntax|proxy_protocol_networks|session_track_.*",
    "system_versioning_asof|backtrace_functions|debug_discard_caches|dynamic_library_path",
    "extension_destdir|restrict_nonsystem_relation_kind|promote_trigger_file|synchronous_.*",
    "unix_socket_.*|cluster_name|event_source|timezone_abbreviations|default_text_search_config",
    "wal_consistency_checking|syslog_ident|transaction_(deferrable|isolation)",
    "max_user_connections|sql_log_bin|tcp_nodelay|expire_logs_days|innodb_(commit_con|double).*",
    "authentication_policy|binlog_encryption|mandatory_roles|protocol_comp.*|rbr_exec_mode",
    "external_table_.*|enforce_gtid_consistency",
]


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Hundreds of plays have the same warnings, and SQLAlchemy's of sessions that end."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def mysql() -> Iterator[MysqlSettings]:
    config = ("--performance-schema=ON",) if is_mysql() else ()
    with (
        new_server(config=config).started() as server,
        closing(MysqlSettings(server, LEFT_OUT_OF_MYSQL)) as settings,
    ):
        yield settings


@pytest.fixture
def postgres() -> Iterator[PostgresSettings]:
    with (
        PostgresServer().started() as server,
        closing(PostgresSettings(server, LEFT_OUT_OF_POSTGRES)) as settings,
    ):
        yield settings


def walk(server: Server, refused: dict[str, str]) -> Report:
    report = Walk(server, refused, ALONE).walk(together=30)
    print(report)
    check(report, refused, WITHOUT_VALUE, SOMETIMES)
    fired("server setting", len(report.taken))
    return report


def test_no_setting_of_mariadb_changes_a_result(mysql: MysqlSettings) -> None:
    report = walk(mysql, REFUSED_BY_MYSQL if is_mysql() else REFUSED_BY_MARIADB)
    assert len({setting.name for setting in report.taken}) > 300


def test_no_setting_of_postgres_changes_a_result(postgres: PostgresSettings) -> None:
    report = walk(postgres, REFUSED_BY_POSTGRES)
    assert len({setting.name for setting in report.taken}) > 200
