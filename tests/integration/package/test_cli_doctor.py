"""hotcount doctor: which settings of a server make which feature unsafe, on real servers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import _doctor_redis, _doctor_sql
from hotcount.cli import main

from tests.support.failover import started
from tests.support.mariadb_server import MariaDbServer
from tests.support.pgbouncer_server import PgBouncer
from tests.support.servers import PostgresServer, RedisServer

SAFE = ("--appendonly", "yes", "--appendfsync", "always")

Doctor = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """The exit code and the findings of all targets."""

    def run(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
        code = main(["doctor", "--json", *arguments])
        result = json.loads(capsys.readouterr().out)
        assert result["ok"] == (code == 0)
        return code, [each for target in result["targets"] for each in target["findings"]]

    return run


def states(findings: list[dict[str, Any]], check: str) -> dict[str, set[str]]:
    """Whom each state of a check concerns."""
    return {each["state"]: set(each["unsafe_for"]) for each in findings if each["check"] == check}


@pytest.fixture
def redis_with(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    with ExitStack() as servers:

        def start(*config: str) -> RedisServer:
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            return servers.enter_context(RedisServer(folder, config=config).started())

        yield start


def test_a_store_in_memory_is_each_processes_own(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    code, findings = doctor("memory://likes")
    assert (code, findings[0]["state"]) == (0, "warning")
    assert "4 workers" in findings[0]["advice"]
    assert main(["doctor", "memory://"]) == 0
    shown = capsys.readouterr()
    assert "warning  processes" in shown.out
    assert shown.err == "nothing unsafe was found\n"


def test_a_file_is_looked_at_and_never_made(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "votes.db"
    code, findings = doctor(f"sqlite:///{file}")
    assert (code, findings[0]["found"]) == (3, "there is no such file")
    assert not file.exists()
    hotcount.Database(f"sqlite:///{file}").close()
    _, findings = doctor(f"sqlite:///{file}")
    assert list(states(findings, "libraries")) == ["warning"], "the tests have apsw"
    monkeypatch.setattr(_doctor_sql, "OTHER_SQLITES", ())
    code, findings = doctor(f"sqlite:///{file}")
    assert code == 0
    assert {each["state"] for each in findings} == {"ok"}
    assert findings[0]["found"] == f"SQLite {hotcount.build_info()['sqlite']}"
    code, findings = doctor("sqlite:///:memory:")
    assert (code, set(states(findings, "durability"))) == (1, {"unsafe"})


def test_bad_usage_and_what_does_not_answer(
    doctor: Doctor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "gopher://x"]) == 2
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "memory://", "--for", "nothing"])
    assert ended.value.code == 2
    for url in (
        f"redis+unix://:canary@{tmp_path}/nobody.sock",
        "postgresql://app:canary@127.0.0.1:1/app",
    ):
        assert main(["doctor", url]) == 3
        shown = capsys.readouterr()
        assert "unknown  reachable" in shown.out
        assert "canary" not in shown.out + shown.err


@pytest.mark.server
def test_a_redis_that_keeps_all_is_fine_and_one_that_keeps_nothing_is_not(
    doctor: Doctor, redis_with: Callable[..., RedisServer]
) -> None:
    code, findings = doctor(redis_with(*SAFE).url)
    assert (code, {each["state"] for each in findings}) == (0, {"ok"})
    forgetful = redis_with()
    code, findings = doctor(forgetful.url)
    assert code == 1
    assert states(findings, "persistence") == {
        "unsafe": {"counters", "retry", "write_behind"},
        "warning": {"limiters", "sets", "cached", "views"},
    }
    (eviction,) = (each["found"] for each in findings if each["check"] == "eviction")
    assert "no maxmemory" in eviction
    assert "refuses writes" not in eviction
    # Limits may begin anew.
    assert doctor("--for", "limiters", forgetful.url)[0] == 0
    assert doctor("--for", "limiters", "--for", "counters", forgetful.url)[0] == 1


@pytest.mark.server
def test_what_an_evicting_redis_loses_is_said_for_each_feature(
    doctor: Doctor, redis_with: Callable[..., RedisServer]
) -> None:
    full = ("--maxmemory", "50mb", "--maxmemory-policy")
    everything = {"counters", "retry", "limiters", "cached", "write_behind", "views"}
    for config, expected in (
        ((*full, "allkeys-lru"), {"unsafe": everything, "warning": {"sets"}}),
        (
            (*full, "volatile-ttl"),
            {"unsafe": {"retry"}, "warning": {"counters", "limiters", "sets"}},
        ),
        ((*full, "noeviction"), {"ok": set()}),
        (
            ("--maxmemory-policy", "allkeys-lfu"),
            {"unsafe": {"views"}, "warning": everything - {"views"} | {"sets"}},
        ),
    ):
        server = redis_with(*SAFE, *config)
        code, findings = doctor(server.url)
        assert states(findings, "eviction") == expected
        assert code == (0 if "ok" in expected else 1)


@pytest.mark.server
def test_replicas_are_asked_for_and_a_replica_is_refused(
    doctor: Doctor, redis_with: Callable[..., RedisServer]
) -> None:
    lonely = redis_with(*SAFE, "--min-replicas-to-write", "1")
    assert set(states(doctor(lonely.url)[1], "replicas")) == {"unsafe"}
    replica = redis_with(*SAFE, "--replicaof", "127.0.0.1 1")
    code, findings = doctor(replica.url)
    assert (code, set(states(findings, "role"))) == (1, {"unsafe"})
    # What it keeps, and that nothing follows it, says nothing of its primary.
    assert [each["check"] for each in findings] == ["version", "role", "connections"]
    assert "refuses writes; it does not reach its primary" in findings[1]["found"]
    assert "127.0.0.1:1," in findings[1]["advice"]
    replica.redis().execute("CONFIG", "SET", "replica-read-only", "no")
    assert "takes writes, and loses them" in doctor(replica.url)[1][1]["found"]


@pytest.mark.server
def test_a_user_who_may_not_read_the_configuration_is_told_so(
    doctor: Doctor, redis_with: Callable[..., RedisServer]
) -> None:
    server = redis_with(*SAFE)
    server.redis().execute("ACL", "SETUSER", "app", "on", ">canary", "~*", "+@all", "-config")
    code, findings = doctor(server.login("app", "canary"))
    assert (code, set(states(findings, "persistence"))) == (3, {"unknown"})
    assert "canary" not in json.dumps(findings)
    server.redis().execute("ACL", "SETUSER", "app", "-info")
    for url in (server.login("app", "canary"), server.login("app", "wrong")):
        code, findings = doctor(url)
        assert (code, set(states(findings, "access"))) == (3, {"unknown"})
        assert "votes" not in findings[0]["unsafe_for"]  # In SQL alone.
        assert "may run INFO" in findings[0]["advice"]


def test_a_tls_port_that_does_not_answer_brings_advice_about_its_ca(doctor: Doctor) -> None:
    code, findings = doctor("rediss://127.0.0.1:1")
    assert (code, findings[0]["check"]) == (3, "reachable")
    assert "ca_file" in findings[0]["advice"]


def test_words_of_replicas_and_disks_that_a_server_may_say() -> None:
    late = {"connected_slaves": "1", "slave0": "ip=h,port=1,state=online,offset=1,lag=31"}
    found = _doctor_redis.replicas(late, {})
    assert [each.state for each in found] == ["warning", "warning"]
    assert "31 s" in found[1].found
    failing = {"rdb_last_bgsave_status": "err", "aof_enabled": "1"}
    found = _doctor_redis.persistence(failing, {"appendfsync": "always"})
    assert [each.state for each in found] == ["unsafe", "ok"]
    versions = {"6.0.16": "unsafe", "6.2.0": "warning", "7.0.0": "ok", "": "unknown"}
    for version, state in versions.items():
        assert _doctor_redis.version({"redis_version": version}).state == state


def test_postgresql_is_judged_by_what_holds_for_the_session(
    doctor: Doctor, postgres_server: PostgresServer
) -> None:
    code, findings = doctor(postgres_server.url())
    assert code == 0
    assert findings[0]["found"].startswith("PostgreSQL 1")
    code, findings = doctor(postgres_server.url(options="&options=-csynchronous_commit%3Doff"))
    assert code == 1
    (unsafe,) = (each for each in findings if each["state"] == "unsafe")
    assert unsafe["found"].startswith("synchronous_commit off")
    assert set(unsafe["unsafe_for"]) == {"votes", "cached", "write_behind", "views"}
    some = doctor("--processes", "12", postgres_server.url())
    (room,) = (each for each in some[1] if each["check"] == "connections")
    assert (room["state"], "up to 36 sessions" in room["found"]) == ("ok", True)
    many = doctor("--processes", "100", postgres_server.url())
    assert (many[0], set(states(many[1], "connections"))) == (0, {"warning"})
    serializable = "&options=-cdefault_transaction_isolation%3Dserializable"
    findings = doctor(postgres_server.url(options=serializable))[1]
    assert set(states(findings, "isolation")) == {"warning"}


def test_a_pooler_in_between_is_noticed(doctor: Doctor, postgres_server: PostgresServer) -> None:
    with PgBouncer(postgres_server).started() as pooler:
        code, findings = doctor(pooler.url())
        assert (code, "pooler" in {each["check"] for each in findings}) == (0, True)
        assert "pooler" not in {each["check"] for each in doctor(postgres_server.url())[1]}


def test_mariadb_that_commits_without_the_disk_is_unsafe(
    doctor: Doctor, mariadb_server: MariaDbServer, mariadb_database: str
) -> None:
    url = mariadb_server.url(mariadb_database)
    assert doctor(url)[0] == 0
    with mariadb_server.connect(mariadb_database) as session, session.cursor() as cursor:
        cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        try:
            code, findings = doctor(url)
        finally:
            cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    assert (code, set(states(findings, "version"))) == (1, {"ok"})
    unsafe = [each["found"] for each in findings if each["state"] == "unsafe"]
    assert unsafe == ["innodb_flush_log_at_trx_commit 2: the last commits may be lost in a crash"]


@pytest.mark.server
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_second_host_that_takes_writes_is_unsafe(doctor: Doctor, kind: str) -> None:
    with started(kind, synchronous=False) as pair:
        url = pair.url(options="&target_session_attrs=read-write")
        assert set(states(doctor(url)[1], "hosts")) == {"ok"}
        pair.promote()
        code, findings = doctor(url)
        assert (code, set(states(findings, "hosts"))) == (1, {"unsafe"})
        (found,) = (each["found"] for each in findings if each["check"] == "hosts")
        assert all(f"127.0.0.1:{port}" in found for port in pair.ports)
        pair.end_primary("kill")
        (away,) = (each for each in doctor(url)[1] if each["check"] == "hosts")
        assert (away["state"], str(pair.ports[0]) in away["found"]) == ("warning", True)


@pytest.mark.parametrize(
    ("writers", "silent", "state"),
    [(["a"], [], "ok"), (["a", "b"], [], "unsafe"), (["a"], ["b"], "warning"), ([], [], "unsafe")],
)
def test_exactly_one_host_takes_writes(writers: list[str], silent: list[str], state: str) -> None:
    assert _doctor_sql.check_hosts(writers, {}, silent, 2).state == state


GALERA = {
    "wsrep_on": "ON",
    "wsrep_ready": "ON",
    "wsrep_cluster_status": "Primary",
    "wsrep_cluster_size": "3",
    "wsrep_local_state_comment": "Synced",
    "wsrep_sst_method": "mariabackup",
}


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ({}, ["ok"]),
        ({"wsrep_on": "OFF"}, []),
        ({"wsrep_ready": "OFF"}, ["unsafe"]),
        ({"wsrep_cluster_status": "non-Primary"}, ["unsafe"]),
        ({"wsrep_cluster_size": "2"}, ["warning"]),
        ({"wsrep_local_state_comment": "Donor/Desynced"}, ["warning"]),
        ({"wsrep_sst_method": "rsync"}, ["ok", "warning"]),
    ],
)
def test_a_galera_node_is_judged_by_its_state(says: dict[str, str], expected: list[str]) -> None:
    findings = _doctor_sql.galera(GALERA | says)
    assert [each.state for each in findings] == expected
    assert all(each.advice for each in findings if each.state != "ok")


SYNCHRONOUS = {
    "synchronous_standby_names": "standby",
    "synchronous_commit": "on",
    "replicas": "1",
    "synchronous_replicas": "1",
    "replica_lag_seconds": "0.2",
}


@pytest.mark.parametrize(
    ("says", "standbys", "lag"),
    [
        ({}, ["ok"], ["ok"]),
        ({"synchronous_standby_names": ""}, ["warning"], ["ok"]),
        ({"synchronous_commit": "local"}, ["warning"], ["ok"]),
        ({"synchronous_replicas": "0"}, ["unsafe"], []),
        ({"synchronous_replicas": "0", "replicas": "0"}, ["unsafe"], []),
        ({"synchronous_standby_names": "", "replicas": "0"}, [], []),
        ({"replica_lag_seconds": "30"}, ["ok"], ["warning"]),
    ],
)
def test_standbys_are_judged_by_what_commits_wait_for(
    says: dict[str, str], standbys: list[str], lag: list[str]
) -> None:
    findings = _doctor_sql.standbys(SYNCHRONOUS | says)
    assert [each.state for each in findings if each.check == "standbys"] == standbys
    assert [each.state for each in findings if each.check == "replica lag"] == lag
