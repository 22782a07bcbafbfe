"""redis:// to a node of a cluster, a Sentinel or a replica: the error says which it is, and no
policy for outages answers in its place."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import Queued, RetryQueue, _doctor_cluster, _doctor_redis, aio

from tests.support.eventually import eventually
from tests.support.resp_server import ScriptedServer
from tests.support.servers import RedisServer, free_port

pytestmark = pytest.mark.server

KEYS = [f"k{number}" for number in range(30)]
Call = Callable[[Any, Any], object]
POLICIES: list[Any] = ["raise", "open", "closed", "local"]


def node_of(folder: Path) -> RedisServer:
    folder.mkdir()
    bus = ("--cluster-port", str(free_port()))
    return RedisServer(folder, port=free_port(), config=("--cluster-enabled", "yes", *bus))


def is_joined(store: hotcount.Redis) -> bool:
    return b"cluster_state:ok" in store.execute("CLUSTER", "INFO")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    """Two primaries of a cluster with half of the slots each."""
    folder = tmp_path_factory.mktemp("cluster")
    with (
        node_of(folder / "first").started() as first,
        node_of(folder / "second").started() as other,
    ):
        stores = [server.redis(timeout=20) for server in (first, other)]
        for store, slots in zip(stores, ((0, 8191), (8192, 16383)), strict=True):
            store.execute("CLUSTER", "ADDSLOTSRANGE", *slots)
        bus = stores[1].execute("CONFIG", "GET", "cluster-port")[1]
        stores[0].execute("CLUSTER", "MEET", "127.0.0.1", other.port, bus)
        for store in stores:
            eventually(partial(is_joined, store), 20)
        yield [first, other]


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[RedisServer]:
    """A node without slots."""
    with node_of(tmp_path / "lonely").started() as server:
        yield server


def answers(calls: list[Callable[[], Any]]) -> list[Any]:
    """What each call returns, or its error."""
    said = []
    for call in calls:
        try:
            said.append(call())
        except hotcount.HotcountError as error:
            said.append(error)
    return said


def codes(said: list[Any]) -> set[str | None]:
    """Of the errors, each of which must be a ConfigError that names server and way out."""
    errors = [one for one in said if isinstance(one, hotcount.HotcountError)]
    for error in errors:
        assert isinstance(error, hotcount.ConfigError), error
        assert "Redis Cluster" in str(error)
    return {error.code for error in errors}


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_admits_for_another_node(pair: list[RedisServer], policy: Any) -> None:
    with pair[0].redis(timeout=20) as store:
        store.execute("FLUSHALL")
        limiter = hotcount.Limiter(store, "1/300 days", on_error=policy, name=policy)
        said = answers([partial(limiter.hit, key) for key in 3 * KEYS])
        assert codes(said) == {"MOVED"}
        assert {one.server for one in said if isinstance(one, hotcount.ConfigError)} == {
            f"redis {pair[0].socket}"
        }
        decisions = [one for one in said if isinstance(one, hotcount.Decision)]
        assert {one.reason for one in decisions} == {"allowed", "limited"}
        admitted = sum(one.allowed for one in decisions)
        assert 3 * admitted == len(decisions)
        many = hotcount.Limiter(store, "1/300 days", on_error=policy, name=f"{policy} many")
        batch = many.hit_many(KEYS, errors="return")
        assert codes(list(batch.errors.values())) == {"MOVED"}
        assert sum(batch.allowed) == len(KEYS) - len(batch.errors) > 0

        async def awaited() -> list[Any]:
            async with aio.Redis(pair[0].url, timeout=20) as there:
                waited = aio.Limiter(there, "1/300 days", on_error=policy, name=f"{policy} aio")
                hits = [waited.hit(key) for key in KEYS]
                return await asyncio.gather(*hits, return_exceptions=True)

        said = asyncio.run(awaited())
        assert codes(said) == {"MOVED"}
        assert {one.reason for one in said if isinstance(one, hotcount.Decision)} == {"allowed"}


def test_the_doctor_asks_each_primary_of_a_cluster(pair: list[RedisServer]) -> None:
    first, other = pair
    url = f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{first.port}"

    def found() -> dict[str, Any]:
        return {each.check: each for each in _doctor_cluster.examine(url)}

    seen = found()
    assert seen["node"].state == "warning", "the first of the URL does not answer"
    assert seen["slots"].state == "ok"
    assert seen["slots"].found.startswith("16,384 of 16,384")
    assert seen["node timeout"].state == "ok"
    assert seen["primaries"].state == seen["replicas"].state == "warning"
    assert str(first.port) in seen["replicas"].found
    assert str(other.port) in seen["replicas"].found
    assert str(first.port) not in seen["eviction"].found, "both are set alike"
    with other.redis(timeout=20) as store:
        store.execute("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
        store.execute("CONFIG", "SET", "cluster-node-timeout", "1000")
        try:
            evictions = [each for each in _doctor_cluster.examine(url) if each.check == "eviction"]
            assert {each.state for each in evictions} == {"ok", "unsafe", "warning"}
            assert all(str(first.port) in each.found for each in evictions if each.state == "ok")
            assert all(str(other.port) in each.found for each in evictions if each.state != "ok")
            assert {each.state for each in _doctor_cluster.examine(url)} >= {"ok", "unsafe"}
        finally:
            store.execute("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
            store.execute("CONFIG", "SET", "cluster-node-timeout", "15000")


def test_the_doctor_names_slots_that_nobody_has(lonely: RedisServer) -> None:
    (slots,) = [
        each
        for each in _doctor_cluster.examine(f"redis+cluster://127.0.0.1:{lonely.port}")
        if each.check == "slots"
    ]
    assert slots.state == "unsafe"
    assert slots.found.startswith("0 of 16,384")
    nobody = _doctor_cluster.examine(f"redis+cluster://127.0.0.1:{free_port()}")
    assert [(each.check, each.state) for each in nobody] == [
        ("node", "warning"),
        ("reachable", "unknown"),
    ]


def test_the_doctor_of_a_cluster_refuses_one_server(tmp_path: Path) -> None:
    with RedisServer(tmp_path, port=free_port()).started() as server:
        (role,) = _doctor_cluster.examine(f"redis+cluster://127.0.0.1:{server.port}")
    assert (role.check, role.state) == ("role", "unsafe")
    assert "redis://" in role.advice


def rebuilt(store: Any, _: Any) -> None:
    with hotcount.LiveSets(store).rebuild("k", ttl=60) as build:
        build.add("a", 1)


def voted(store: Any, database: Any) -> None:
    votes = hotcount.Votes(database, store, "write_behind")
    votes.create_tables()
    votes.add_items([1])
    votes.cast(1, 1)


def viewed(store: Any, database: Any) -> None:
    views = hotcount.WriteBehindCounter(database, store)
    views.create_tables()
    views.add("k")


def worked(store: Any, database: Any) -> None:
    """A worker that runs until it is told to stop: it ends with the error."""
    votes = hotcount.Votes(database, store, "cached")
    votes.create_tables()
    votes.add_items([1])
    assert votes.cast(1, 1).counted, "it is in SQL"
    votes.sync_worker().run()


CALLS: list[Any] = [
    *(
        pytest.param(
            lambda store, _, algorithm=algorithm, policy=policy: hotcount.Limiter(
                store, "5/minute", algorithm=algorithm, on_error=policy
            ).hit("k"),
            id=f"{algorithm}, {policy}",
        )
        for algorithm in ("gcra", "fixed_window", "sliding_window", "sliding_log")
        for policy in ("raise", "open")
    ),
    *(
        pytest.param(call, id=name)
        for name, call in {
            "add": lambda store, _: hotcount.Counter(store).add("k"),
            "add, ttl": lambda store, _: hotcount.Counter(store, ttl=60).add("k"),
            "add, op_id": lambda store, _: hotcount.Counter(store).add("k", op_id="one"),
            "add, retry": lambda store, _: hotcount.Counter(store, retry=RetryQueue()).add("k"),
            "try_add": lambda store, _: hotcount.Counter(store).try_add("k", max=5),
            "get": lambda store, _: hotcount.Counter(store).get("k"),
            "period": lambda store, _: hotcount.PeriodCounter(store).add("k"),
            "reserve": lambda store, _: hotcount.Limiter(store, "5/s", on_error="open").reserve(
                "k", 1
            ),
            "leased hit": lambda store, _: hotcount.Limiter(
                store, "50/s", lease=5, on_error="local"
            ).hit("k"),
            "hit_all": lambda store, _: hotcount.hit_all(
                [(hotcount.Limiter(store, "5/s", on_error="open"), key) for key in KEYS]
            ),
            "place": lambda store, _: hotcount.ConcurrencyLimit(store, 1).acquire("k"),
            "create": lambda store, _: hotcount.LiveSets(store).create("k", 60, {"a": 1}),
            "upsert": lambda store, _: hotcount.LiveSets(store).upsert("k", "a", 1),
            "top": lambda store, _: hotcount.LiveSets(store).top("k", 1),
            "rebuild": rebuilt,
            "vote": voted,
            "view": viewed,
            "worker": worked,
            "execute": lambda store, _: store.execute("GET", "k"),
            "alone": lambda store, _: store.execute("MIGRATE", "h", 1, "k", 0, 1),
        }.items()
    ),
]


@pytest.mark.parametrize("call", CALLS)
def test_each_concept_names_a_node_that_serves_no_slots(
    lonely: RedisServer, tmp_path: Path, call: Call
) -> None:
    with (
        lonely.redis(timeout=20) as store,
        hotcount.Database(f"sqlite:///{tmp_path}/counts.db") as database,
    ):
        assert codes(answers([lambda: call(store, database)])) == {"CLUSTERDOWN"}


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        ("ASK 5 127.0.0.1:7001", "ASK"),
        ("CROSSSLOT Keys in request don't hash to the same slot", "CROSSSLOT"),
        ("TRYAGAIN Multiple keys request during rehashing of slot", "TRYAGAIN"),
        ("ERR Script attempted to access a non local key in a cluster node script: 1f", "ERR"),
    ],
)
def test_words_of_nodes_in_the_midst_of_a_move(tmp_path: Path, refusal: str, code: str) -> None:
    answer = {b"EVALSHA": f"-{refusal}\r\n".encode()}
    server = ScriptedServer(tmp_path, lambda words: answer.get(words[0], b"-ERR unknown\r\n"))
    with server, hotcount.Redis(server.url, timeout=0.2) as store:
        limiter = hotcount.Limiter(store, "5/minute", on_error="open")
        assert codes(answers([lambda: limiter.hit("k")])) == {code}


def test_adds_that_wait_are_counted_or_expire_and_no_more_join_them(
    pair: list[RedisServer], tmp_path: Path
) -> None:
    queue = RetryQueue(path=tmp_path / "adds", max_age=3)
    counter = hotcount.Counter(
        hotcount.Redis(f"redis+unix://{tmp_path}/nobody", timeout=0.1), retry=queue, prefix="wait"
    )
    assert all(isinstance(counter.add(key), Queued) for key in KEYS)
    with pytest.warns(RuntimeWarning, match="30 adds still wait"):
        counter.close()
    with pair[0].redis(timeout=20) as store:
        # The file holds what was promised to other callers.
        late = hotcount.Counter(store, retry=queue, prefix="wait")
        here = [key for key in KEYS if isinstance(answers([partial(late.get, key)])[0], int)]
        assert 0 < len(here) < len(KEYS)
        elsewhere = next(key for key in KEYS if key not in here)
        eventually(lambda: late.retry_stats().replayed == len(here), 20)
        assert codes(answers([lambda: late.add(elsewhere)])) == {"MOVED"}
        assert [late.add(key) for key in here] == [2] * len(here)
        eventually(lambda: late.retry_stats().waiting == 0, 20)
        stats = late.retry_stats()
        assert (stats.replayed, stats.expired) == (len(here), len(KEYS) - len(here))
        assert codes(answers([lambda: late.add(elsewhere)])) == {"MOVED"}


def pings(url: str, **options: Any) -> list[Any]:
    """What the sync and the aio face say of it."""

    async def awaited() -> bool:
        async with aio.Redis(url, timeout=20, **options) as store:
            return await store.ping()

    with hotcount.Redis(url, timeout=20, **options) as store:
        return answers([store.ping, lambda: asyncio.run(awaited())])


def test_ping_names_a_node_of_a_cluster(pair: list[RedisServer], lonely: RedisServer) -> None:
    assert codes(pings(pair[0].url)) == {"MOVED"}
    assert codes(pings(lonely.url)) == {"CLUSTERDOWN"}
    # It does not ask what a proxy may not know.
    assert pings(pair[0].url, protocol=2) == [True, True]


def test_the_doctor_names_a_node_of_a_cluster(pair: list[RedisServer], lonely: RedisServer) -> None:
    for server, expected in ((pair[0], "primaries: 2, state ok"), (lonely, "state fail")):
        with server.redis(timeout=20) as store:
            (role,) = (each for each in _doctor_redis.examine(store) if each.check == "role")
        assert (role.state, expected in role.found) == ("unsafe", True), role
        assert "redis+cluster://" in role.advice


def test_ping_and_the_doctor_name_a_sentinel(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "sentinel.conf").write_text(
        f"port {port}\nbind 127.0.0.1\nsentinel monitor likes 127.0.0.1 {free_port()} 1\n"
    )
    program = shutil.which("redis-server")
    assert program is not None
    command = [program, str(tmp_path / "sentinel.conf"), "--sentinel", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as sentinel:
        try:
            url = f"redis://127.0.0.1:{port}"
            eventually(lambda: "Connection refused" not in str(pings(url)[0]), 20)
            for said in pings(url):
                assert isinstance(said, hotcount.ConfigError)
                assert "Sentinel" in str(said)
            with hotcount.Redis(url, timeout=20) as store:
                version, role = _doctor_redis.examine(store)
            assert (version.check, role.state) == ("version", "unsafe")
            assert "Sentinel" in role.found
            assert "likes at 127.0.0.1:" in role.advice
        finally:
            sentinel.terminate()


def test_ping_names_a_replica_that_takes_no_writes(own_redis: RedisServer) -> None:
    with own_redis.redis(timeout=20) as direct:
        assert pings(own_redis.url) == [True, True]
        assert direct.ping()
        direct.execute("REPLICAOF", "127.0.0.1", 1)
        for said in [*pings(own_redis.url), *answers([direct.ping])]:
            assert isinstance(said, hotcount.UnavailableError)
            assert (said.code, "replica of 127.0.0.1:1" in str(said)) == ("READONLY", True)
        direct.execute("CONFIG", "SET", "replica-read-only", "no")
        assert pings(own_redis.url) == [True, True]
