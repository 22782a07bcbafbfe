"""`hotcount doctor` on databases: the settings that a server reports."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

import hotcount
from hotcount import _doctor_votes
from hotcount._doctor_finding import IN_SQL, Finding, hosts_of, is_remote, numbers
from hotcount.functions import database_settings, driver_calls_our_sqlite

CORRUPTS = "a crash of the machine may corrupt the database"
# Modules whose wheels on PyPI contain SQLite.
OTHER_SQLITES = ("apsw", "pysqlite3", "sqlean", "sqlcipher3", "pysqlcipher3")
LOSES = "the last commits may be lost in a crash"
# The maximum for a process of one thread: docs/reference/databases.md, "Connections".
SESSIONS = 3
# The timeout for each of several hosts, in seconds.
HOST_S = 3.0


def examine(url: str, processes: int, names: dict[str, Any]) -> list[Finding]:
    """names: the names of the tables and columns, as parameters of Votes."""
    with hotcount.Database(url) as database:
        settings = database_settings(database)
        most = database.max_readers + database.max_writers
        sessions = Sessions(processes * min(SESSIONS, most), processes * most)
        if "journal_mode" in settings:
            return sqlite(settings)
        if "server_version_num" in settings or "fsync" in settings:
            findings = postgres(settings, url, sessions)
        else:
            findings = mysql(settings, url, sessions)
        # A server that refuses writes has no tables to check: votes go to its primary.
        if not any(each.check == "role" and each.state == "unsafe" for each in findings):
            findings += hosts(url)
            findings += _doctor_votes.examine(database, names)
        return findings


def refuses_writes(settings: dict[str, str]) -> bool:
    return (
        settings.get("in_recovery") == "true"
        or settings.get("default_transaction_read_only") == "on"
        or settings.get("read_only", "OFF") not in ("OFF", "0")
    )


def is_node(settings: dict[str, str]) -> bool:
    """Whether it is a node of a Galera cluster, in which all nodes take writes."""
    return settings.get("wsrep_on", "OFF") in ("ON", "1")


def hosts(url: str) -> list[Finding]:
    """Checks that one of several hosts takes writes, or the nodes of one Galera cluster."""
    names = hosts_of(url)
    if len(names) < 2:
        return []
    before, _, after = url.partition(",".join(names))
    path, _, options = after.partition("?")
    # With target_session_attrs, a URL of one host might refuse that host.
    kept = [one for one in options.split("&") if not one.startswith("target_session_attrs=")]
    after = f"{path}?{'&'.join(kept)}" if any(kept) else path
    alone, silent = [], []
    nodes: dict[str, int] = {}  # The size of the cluster, as each node reports it.
    for name in names:
        try:
            with hotcount.Database(f"{before}{name}{after}", timeout=HOST_S) as database:
                settings = database_settings(database)
        except hotcount.HotcountError:
            silent.append(name)
            continue
        if is_node(settings):
            if settings.get("wsrep_ready", "ON") == "ON":
                nodes[name] = int(settings.get("wsrep_cluster_size", len(names)))
            else:
                silent.append(name)
        elif not refuses_writes(settings):
            alone.append(name)
    return [check_hosts(alone, nodes, silent, len(names))]


def check_hosts(alone: list[str], nodes: dict[str, int], silent: list[str], count: int) -> Finding:
    """alone: hosts that take writes and are not in a cluster."""
    split = "a vote written to one is missing on the other"
    if alone and nodes:
        both = f"{' and '.join(alone)} takes writes outside the cluster of {', '.join(nodes)}"
        advice = "let it join the cluster, or remove it from the URL"
        return Finding("hosts", "unsafe", f"{both}: {split}", IN_SQL, advice)
    if len(alone) > 1:
        advice = "stop all but the one that was promoted last, and copy it to the others"
        return Finding(
            "hosts", "unsafe", f"{' and '.join(alone)} take writes: {split}", IN_SQL, advice
        )
    if nodes and (fewest := min(nodes.values())) < len(nodes):
        both = f"{', '.join(nodes)} take writes, and the cluster of one of them has {fewest} nodes"
        advice = "keep one cluster, stop the nodes of the others, and let them join it"
        return Finding("hosts", "unsafe", f"{both}: {split}", IN_SQL, advice)
    if silent:
        gone = f"{', '.join(silent)}: no answer within {HOST_S:.0f} s, or the login is refused"
        if nodes:
            gone += ", or wsrep_ready is OFF"
        advice = "start it again" if nodes else "start it again as a standby"
        return Finding("hosts", "warning", gone, IN_SQL, advice)
    if nodes:
        return Finding("hosts", "ok", f"{', '.join(nodes)} take writes, nodes of one cluster")
    if not alone:
        return Finding(
            "hosts", "unsafe", f"none of {count} takes writes", IN_SQL, "start a primary"
        )
    return Finding("hosts", "ok", f"{alone[0]} takes writes, one of {count}")


@dataclass(frozen=True)
class Sessions:
    """The maximum of sessions of our processes, with one thread each and with many."""

    of_one_thread: int
    of_many: int


def at_least(settings: dict[str, str], name: str, what: str, *bounds: tuple[int, ...]) -> Finding:
    """bounds: the oldest version that works, and the oldest version that the tests run."""
    have = numbers(settings.get(name, "").partition(" ")[0])
    found = f"{what} {settings.get(name, '')}"
    if not have:
        return Finding("version", "unknown", f"{what} does not report its version", IN_SQL)
    oldest, good = bounds
    wanted = ".".join(map(str, good))
    if have < oldest:
        return Finding("version", "unsafe", found, IN_SQL, f"{wanted} or newer")
    if have < good:
        return Finding("version", "warning", found, IN_SQL, f"{wanted} or newer, as in our tests")
    return Finding("version", "ok", found)


def durable(settings: dict[str, str], name: str, good: tuple[str, ...], cost: str) -> list[Finding]:
    """Checks that a setting has a good value; unknown if the login may not read it."""
    value = settings.get(name)
    if value is None:
        return [Finding("durability", "unknown", f"{name} cannot be read", IN_SQL)]
    if value.lower() in good:
        return [Finding("durability", "ok", f"{name} {value}")]
    return [
        Finding("durability", "unsafe", f"{name} {value}: {cost}", IN_SQL, f"{name} = {good[0]}")
    ]


def tls(has_tls: bool, url: str) -> list[Finding]:
    if has_tls:
        return [Finding("tls", "ok", "in use")]
    if not is_remote(url):
        return []
    plain = "no TLS to another machine: the network can read and change the traffic"
    advice = "sslmode=verify-full; ssl_ca or ssl_fingerprint on MySQL"
    return [Finding("tls", "warning", plain, IN_SQL, advice)]


def room(most: int, sessions: Sessions) -> Finding:
    found = (
        f"max_connections {most}; hotcount opens up to {sessions.of_one_thread} sessions, or "
        f"{sessions.of_many} if each process has many threads"
    )
    if sessions.of_one_thread > most:
        advice = (
            "fewer max_writers and max_readers, a pooler in between, or a larger max_connections"
        )
        return Finding("connections", "warning", found, IN_SQL, advice)
    return Finding("connections", "ok", found)


def sqlite(settings: dict[str, str]) -> list[Finding]:
    findings = [at_least(settings, "version", "SQLite", (3, 35), (3, 40))]
    mode = settings["journal_mode"]
    if mode == "memory":
        gone = "in memory: the votes end with the process"
        findings.append(Finding("durability", "unsafe", gone, IN_SQL, "sqlite:///FILE"))
    elif mode != "wal":
        slow = f"journal_mode {mode}: readers and the writer wait for each other"
        findings.append(
            Finding("durability", "warning", slow, IN_SQL, "a file that may be written")
        )
    else:
        findings.append(Finding("durability", "ok", "journal_mode wal"))
    # 2 is FULL, 3 EXTRA. Each connection of hotcount sets it.
    if mode != "memory":
        synchronous = {"synchronous": settings.get("synchronous", "")}
        findings += durable(synchronous, "synchronous", ("2", "3"), LOSES)
        findings.append(libraries())
    return findings


def libraries() -> Finding:
    """Whether a process of this Python would have two SQLite libraries."""
    try:
        method: Any = importlib.import_module("sqlite3").Connection.cursor
        shared = driver_calls_our_sqlite(method)
    except ImportError:
        shared = True
    if not shared:
        own = "Python's sqlite3 has an SQLite library of its own"
        advice = "a Python with the system's library; else open this file with hotcount alone"
        return Finding("libraries", "unsafe", own, IN_SQL, advice)
    found = [name for name in OTHER_SQLITES if importlib.util.find_spec(name) is not None]
    if found:
        installed = f"{', '.join(found)} installed, with an SQLite library of its own"
        advice = "in a process that uses hotcount, do not open this file with them"
        return Finding("libraries", "warning", installed, IN_SQL, advice)
    return Finding("libraries", "ok", "Python's sqlite3 uses the same library")


def postgres(settings: dict[str, str], url: str, sessions: Sessions) -> list[Finding]:
    findings = [
        at_least(settings, "server_version", "PostgreSQL", (12,), (15,)),
        *durable(settings, "fsync", ("on",), CORRUPTS),
        *durable(settings, "full_page_writes", ("on",), CORRUPTS),
        *durable(
            settings, "synchronous_commit", ("on", "local", "remote_write", "remote_apply"), LOSES
        ),
        *tls(settings.get("tls") == "true", url),
    ]
    if refuses_writes(settings):
        findings.append(
            Finding(
                "role",
                "unsafe",
                "a standby, or read-only: it refuses writes",
                IN_SQL,
                "name its primary",
            )
        )
    else:
        findings.append(Finding("role", "ok", "primary"))
    level = settings.get("default_transaction_isolation", "read committed")
    if level != "read committed":
        slow = f"{level} by default: batches send BEGIN and COMMIT of their own"
        findings.append(
            Finding("isolation", "warning", slow, IN_SQL, "read committed for this role")
        )
    else:
        findings.append(Finding("isolation", "ok", level))
    if settings.get("pooled") == "on":
        pooled = "in use: no statement stays prepared"
        findings.append(Finding("pooler", "ok", pooled))
    findings += standbys(settings)
    reserved = int(settings.get("superuser_reserved_connections", "0"))
    most = int(settings.get("max_connections", "0"))
    if most and settings.get("pooled") != "on":
        findings.append(room(most - reserved, sessions))
    return findings


def standbys(settings: dict[str, str]) -> list[Finding]:
    names = settings.get("synchronous_standby_names")
    level = settings.get("synchronous_commit", "on")
    # A login that may not see standbys gets neither value.
    if names and settings.get("synchronous_replicas") == "0":
        alone = f"synchronous_standby_names {names}: none of them is connected, and commits wait"
        advice = "start one, or ALTER SYSTEM RESET synchronous_standby_names"
        return [Finding("standbys", "unsafe", alone, IN_SQL, advice)]
    if int(settings.get("replicas", "0")) == 0:
        return []
    findings = []
    if names and level in ("local", "off"):
        alone = (
            f"synchronous_commit {level} waits for no standby: a failover loses the last commits"
        )
        findings.append(Finding("standbys", "warning", alone, IN_SQL, "synchronous_commit = on"))
    elif not names:
        findings.append(
            Finding(
                "standbys",
                "warning",
                "asynchronous: a failover loses the commits that the new primary had not received",
                IN_SQL,
                "synchronous_standby_names",
            )
        )
    else:
        said = f"synchronous: {settings.get('synchronous_replicas', 'some')} of "
        findings.append(Finding("standbys", "ok", f"{said}{settings['replicas']} take part"))
    lag = float(settings.get("replica_lag_seconds", "0"))
    if lag > 10:
        late = f"{lag:.0f} s behind: counts from read_url are so old, and a promotion takes so long"
        advice = "check its disk, its long queries and the network"
        findings.append(Finding("replica lag", "warning", late, IN_SQL, advice))
    else:
        findings.append(Finding("replica lag", "ok", f"{lag:.1f} s"))
    return findings


def galera(settings: dict[str, str]) -> list[Finding]:
    """The findings about a node of MariaDB Galera; none for another server."""
    if not is_node(settings) or "wsrep_ready" not in settings:
        return []
    size = int(settings.get("wsrep_cluster_size", "0"))
    status = settings.get("wsrep_cluster_status", "unknown")
    state = settings.get("wsrep_local_state_comment", "unknown")
    found = f"wsrep_ready {settings['wsrep_ready']}, {status}, {size} nodes, {state}"
    if settings["wsrep_ready"] != "ON" or status != "Primary":
        refuses = f"{found}: it refuses statements (error 1047)"
        advice = "another node; this one has no majority, or waits for a state transfer"
        return [Finding("galera", "unsafe", refuses, IN_SQL, advice)]
    findings = []
    if size < 3:
        few = f"{found}: the loss of one node ends the majority"
        findings.append(Finding("galera", "warning", few, IN_SQL, "three nodes, or two and garbd"))
    elif state != "Synced":
        late = f"{found}: the node lags, or sends its state to a joining node"
        findings.append(
            Finding("galera", "warning", late, IN_SQL, "another node until it is Synced")
        )
    else:
        findings.append(Finding("galera", "ok", found))
    method = settings.get("wsrep_sst_method", "")
    if method in ("rsync", "mysqldump"):
        blocks = f"wsrep_sst_method {method}: a joining node stops the writes of its donor"
        findings.append(Finding("galera", "warning", blocks, IN_SQL, "mariabackup"))
    return findings


def mysql(settings: dict[str, str], url: str, sessions: Sessions) -> list[Finding]:
    is_mariadb = "mariadb" in settings.get("version", "").lower()
    findings = [
        at_least(settings, "version", "MariaDB", (10, 6), (10, 11))
        if is_mariadb
        else at_least(settings, "version", "MySQL", (8, 0, 1), (8, 0, 1)),
        *durable(settings, "innodb_flush_log_at_trx_commit", ("1",), LOSES),
        *durable(settings, "innodb_doublewrite", ("on", "1", "detect_and_recover"), CORRUPTS),
        *tls(bool(settings.get("Ssl_cipher")), url),
    ]
    if settings.get("log_bin", "OFF") in ("ON", "1"):
        lacks = "after a crash the binary log and the replicas may lack the last commits"
        findings += durable(settings, "sync_binlog", ("1",), lacks)
    if refuses_writes(settings):
        findings.append(
            Finding("role", "unsafe", "read_only: it refuses writes", IN_SQL, "name its primary")
        )
    else:
        findings.append(Finding("role", "ok", "primary"))
    findings += galera(settings)
    level = settings.get("transaction_isolation", settings.get("tx_isolation", ""))
    findings.append(Finding("isolation", "ok", f"{level} in our sessions"))
    most = int(settings.get("max_connections", "0"))
    if most:
        findings.append(room(most, sessions))
    return findings
