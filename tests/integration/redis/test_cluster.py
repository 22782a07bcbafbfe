"""A cluster of three primaries: all that runs there, sync and aio, and what is refused."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hotcount
import hotcount.aio
import pytest

from tests.support.certificates import Certificates
from tests.support.eventually import eventually
from tests.support.programs import run_python
from tests.support.redis_cluster import RedisCluster
from tests.support.servers import RedisServer, free_port
from tests.support.votes_strategies import shard_of

pytestmark = pytest.mark.server

KEYS = [f"photo:{number}" for number in range(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path_factory.mktemp("cluster"), replicas=False).started() as running:
        yield running


@pytest.fixture
def store(cluster: RedisCluster, request: pytest.FixtureRequest) -> Iterator[hotcount.Redis]:
    with hotcount.Redis(cluster.url, prefix=f"{request.node.name}:", timeout=5) as opened:
        yield opened


def keys_each(cluster: RedisCluster, prefix: str | bytes) -> list[int]:
    """How many keys of this prefix each primary has."""
    return [len(list(node.client.scan_iter(f"{prefix!s}*"))) for node in cluster.nodes]


def test_adds_go_to_the_nodes_of_their_slots(cluster: RedisCluster, store: hotcount.Redis) -> None:
    counter = hotcount.Counter(store)
    for key in KEYS:
        assert counter.add(key, 2) == 2
    assert counter.get("photo:7") == 2
    assert min(keys_each(cluster, store.prefix)) > 50
    assert counter.reset("photo:7") == 2
    assert counter.get("photo:7") == 0


def test_batches_are_on_all_nodes(cluster: RedisCluster, store: hotcount.Redis) -> None:
    counter = hotcount.Counter(store)
    assert counter.add_many(KEYS * 2, 3).tolist() == [3] * 300 + [6] * 300
    assert counter.get_many([*KEYS, "none"]).tolist() == [6] * 300 + [0]
    assert sum(keys_each(cluster, store.prefix)) == 300


def test_adds_that_live_for_a_time_and_adds_by_op_id(store: hotcount.Redis) -> None:
    counter = hotcount.Counter(store, ttl=60)
    assert counter.add_many(KEYS).tolist() == [1] * 300
    assert 0 < (counter.ttl(KEYS[5]) or 0) <= 60
    op_id = hotcount.new_op_id()
    once = hotcount.Counter(store)
    assert [once.add("a", 5, op_id=op_id) for _ in range(3)] == [5, 5, 5]
    assert not once.try_add("a", 10, max=9).applied


def test_periods(store: hotcount.Redis) -> None:
    periods = hotcount.PeriodCounter(store, period="day")
    assert periods.add_many(KEYS, 2).tolist() == [2] * 300
    assert periods.get("photo:1") == 2


def test_limits(store: hotcount.Redis) -> None:
    limiter = hotcount.Limiter(store, "3/minute")
    assert [limiter.hit("anna").allowed for _ in range(4)] == [True, True, True, False]
    decisions = limiter.hit_many(KEYS)
    assert all(each.allowed for each in decisions)
    assert len(decisions) == 300
    both = hotcount.hit_all([(limiter, "one", 1), (limiter, "two", 1), (limiter, "three", 1)])
    assert both.allowed
    assert not hotcount.hit_all([(limiter, "one", 1), (limiter, "anna", 1)]).allowed
    assert limiter.peek("one").remaining == 2
    with hotcount.ConcurrencyLimit(store, 1, lease=30).acquire("job"):
        pass


def test_sets(store: hotcount.Redis) -> None:
    sets = hotcount.LiveSets(store)
    for key in KEYS[:40]:
        with sets.rebuild(key, ttl=60) as building:
            building.add("first", 1)
    rows = [(key, member, score) for key in KEYS[:40] for member, score in (("a", 2), ("b", 3))]
    states = list(sets.upsert_many([*rows, ("gone", "a", 1)]))
    assert all(states[:-1])
    assert not states[-1]
    assert sets.top("photo:3", 2) == [("b", 3.0), ("a", 2.0)]
    assert sets.rank("photo:3", "b") == 0
    assert sets.remove("photo:3", "b")


def test_close_ends_all_connections(cluster: RedisCluster) -> None:
    def connections() -> set[tuple[int, str]]:
        nodes = cluster.nodes
        return {(node.port, each["addr"]) for node in nodes for each in node.client.client_list()}

    before = connections()
    store = hotcount.Redis(cluster.url, prefix="close:", timeout=5)
    counter = hotcount.Counter(store)
    for key in KEYS[:20]:
        counter.add(key)
    assert len(connections() - before) == 4, "to each node, and the one that maps are asked over"
    store.close()
    eventually(lambda: not connections() - before)
    with pytest.raises(hotcount.ClosedError):
        counter.add(KEYS[0])


async def test_a_loop_has_a_connection_to_each_node(store: hotcount.Redis) -> None:
    counter = hotcount.aio.Counter(store)
    assert (await counter.add_many(KEYS, 2)).tolist() == [2] * 300
    assert [await counter.add(key) for key in KEYS[:50]] == [3] * 50
    assert (await counter.get_many(KEYS)).tolist() == [3] * 50 + [2] * 250
    limiter = hotcount.aio.Limiter(store, "3/minute")
    assert [(await limiter.hit("anna")).allowed for _ in range(4)] == [True, True, True, False]
    assert all(each.allowed for each in await limiter.hit_many(KEYS))
    assert (await hotcount.aio.hit_all([(limiter, "one", 1), (limiter, "two", 1)])).allowed
    sets = hotcount.aio.LiveSets(store)
    async with sets.rebuild("feed", ttl=60) as building:
        await building.add("first", 1)
    assert all(await sets.upsert_many([("feed", "a", 2), ("feed", "b", 3)]))
    assert await sets.top("feed", 1) == [("b", 3.0)]


async def test_ping_in_a_loop(cluster: RedisCluster) -> None:
    async with hotcount.aio.Redis(cluster.url) as store:
        assert await store.ping()
        assert await store.ready()


def test_commands_by_their_keys(store: hotcount.Redis) -> None:
    assert store.execute("SET", "{t}a", "1") == b"OK"
    assert store.execute("MGET", "{t}a", "{t}b") == [b"1", None]
    assert store.execute("EVAL", "return KEYS[2]", "2", "{t}a", "{t}b") == b"{t}b"
    assert store.ping()
    assert store.ready()


def test_streams_are_read_from_the_nodes_of_their_slots(store: hotcount.Redis) -> None:
    for tag in "abcde":
        keys = f"{{{tag}}}:STREAMS", f"{{{tag}}}:other"
        for key in keys:
            store.execute("XADD", key, "1-1", "field", "value")
            store.execute("XGROUP", "CREATE", key, "streams", "0")
        told = store.execute("XREAD", "COUNT", "5", "streams", *keys, "0", "0")
        assert told[::2] == [key.encode() for key in keys]
        group = "XREADGROUP", "GROUP", "streams", "streams"
        told = store.execute(*group, "NOACK", "STREAMS", *keys, ">", ">")
        assert told[::2] == [key.encode() for key in keys]


def test_a_sweep_looks_at_each_primary(cluster: RedisCluster, store: hotcount.Redis) -> None:
    for number in range(900):
        feed = f"{store.prefix!s}feed:{number}"
        store.execute("ZADD", feed, 1, "post")
        if number % 10 != 7:
            store.execute("EXPIRE", feed, 60)
    store.execute("SET", f"{store.prefix!s}feed:text", "no set")
    assert min(keys_each(cluster, store.prefix)) > 200
    sets = hotcount.LiveSets(store)
    found = sets.sweep("feed:*", dry_run=True)
    assert (found.scanned, found.found, found.deleted) == (900, 90, 0)
    assert sum(keys_each(cluster, store.prefix)) == 901
    swept = sets.sweep("feed:*")
    assert (swept.scanned, swept.found, swept.deleted) == (900, 90, 90)
    assert sum(keys_each(cluster, store.prefix)) == 811


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("XREAD", "STREAMS", "a", "b", "0", "0"), "two slots of the cluster.*same hash tag"),
        (("XREAD", "COUNT", "1"), "names no key"),
        (("MGET", "a", "b"), "two slots of the cluster.*same hash tag"),
        (("SCAN", "0"), "names no key"),
        (("FLUSHALL",), "names no key"),
        (("NO.SUCH", "a"), "not known.*a store of its own"),
        (("SET x 1",), "give each argument by itself"),
    ],
)
def test_a_command_that_no_node_takes_says_why(
    store: hotcount.Redis, command: tuple[str, ...], says: str
) -> None:
    with pytest.raises(hotcount.ConfigError, match=says):
        store.execute(*command)


def test_counts_of_votes_are_in_shards_of_one_slot_each(
    cluster: RedisCluster, store: hotcount.Redis
) -> None:
    votes = hotcount.Votes("sqlite:///:memory:", store, "cached", missing_items="create")
    votes.create_tables()
    items = range(1, 501)
    votes.cast_many(items, [7] * 500)
    keys = [
        key.decode().removeprefix(store.prefix)
        for node in cluster.nodes
        for key in node.client.scan_iter(f"{store.prefix!s}votes*")
    ]
    hashes = {key for key in keys if key.startswith("votes:")}
    (cache_id,) = {key.split("{")[1].split(":")[0] for key in keys}
    assert hashes == {f"votes:{{{cache_id}:{shard_of(item, 128)}}}:{item}" for item in items}
    # Named by one process, so alike: a fill takes a step for each name.
    names = {key for key in keys if key not in hashes}
    assert names == {f"votes@{{{cache_id}:{shard}}}" for shard in range(128)}
    assert len({store.execute("GET", store.prefix + name) for name in names}) == 1
    assert min(keys_each(cluster, store.prefix)) > 100
    # All of them are found by a worker's scan, and read by readers.
    assert votes.sync_worker().run_once().saved == 500
    assert list(votes.count_many(items).value) == [1] * 500
    votes.close()


def test_votes_that_one_server_counted_are_counted_again_on_a_cluster(
    store: hotcount.Redis, redis_server: RedisServer, tmp_path: Path
) -> None:
    with hotcount.Database(f"sqlite:///{tmp_path}/votes.db") as database:
        with redis_server.redis(timeout=20) as one:
            votes = hotcount.Votes(database, one, "cached", missing_items="create")
            votes.create_tables()
            votes.cast_many([1, 1, 2], [1, 2, 1])
            votes.flush()
            votes.cast_many([1, 2], [3, 3])
        votes = hotcount.Votes(database, store, "cached")
        votes.cast(1, 4)
        votes.flush()
        # The item that nobody has voted for since is left to reconcile().
        assert [int(votes.count(item)) for item in (1, 2)] == [4, 1]
        assert votes.reconcile() == [hotcount.Drift(2, 1, 2)]
        assert [int(votes.count(item)) for item in (1, 2)] == [4, 2]


def test_a_database_other_than_0_is_refused() -> None:
    with pytest.raises(hotcount.ConfigError, match="database 0 alone"):
        hotcount.Redis("redis+cluster://127.0.0.1:7000/3")


@pytest.mark.parametrize("prefix", ["a{b:", "a{}b:", "{"])
def test_a_prefix_that_leaves_companions_in_other_slots_is_refused(prefix: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=r"prefix has a brace.*\{app\}:"):
        hotcount.Redis("redis+cluster://127.0.0.1:7000", prefix=prefix)
    hotcount.Redis("redis+cluster://127.0.0.1:7000", prefix="{a}b}{").close()
    hotcount.Redis("redis://127.0.0.1:7000", prefix=prefix).close()


def test_a_seed_that_is_no_cluster_says_what_to_write(tmp_path: Path) -> None:
    with (
        RedisServer(tmp_path, port=free_port()).started() as server,
        hotcount.Redis(f"redis+cluster://127.0.0.1:{server.port}") as store,
        pytest.raises(hotcount.ConfigError, match=r"no node of a cluster.*redis://127"),
    ):
        hotcount.Counter(store).add("a")


def test_redis_to_a_node_names_the_scheme(cluster: RedisCluster) -> None:
    with hotcount.Redis(f"redis://127.0.0.1:{cluster.nodes[0].port}") as store:
        with pytest.raises(hotcount.ConfigError, match=r"redis\+cluster://"):
            store.ping()
        counter = hotcount.Counter(store)
        elsewhere = counter.add_many(KEYS, errors="return").errors
        assert all("redis+cluster://" in str(error) for error in elsewhere.values())
        assert 100 < len(elsewhere) < 300


@pytest.mark.parametrize(
    ("seeds", "says"),
    [
        ("127.0.0.1:1,127.0.0.1:2", r"127\.0\.0\.1:"),
        ("nobody.invalid", r"nobody\.invalid:6379: the name"),
    ],
)
def test_seeds_that_cannot_be_reached_are_named(seeds: str, says: str) -> None:
    with (
        hotcount.Redis(f"redis+cluster://{seeds}", timeout=5) as store,
        pytest.raises(hotcount.UnavailableError, match=says),
    ):
        hotcount.Counter(store).add("a")


def test_nodes_that_say_nothing_are_named() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        hosts = ",".join(f"127.0.0.1:{each.getsockname()[1]}" for each in (mute, other))
        first = str(mute.getsockname()[1])
        for timeout, says in ((0.1, "CLUSTER SLOTS"), (0.6, "HELLO")):
            with hotcount.Redis(f"redis+cluster://{hosts}", timeout=timeout) as store:

                async def add_in_a_loop() -> None:
                    await hotcount.aio.Counter(store).add("a")

                for call in (lambda: hotcount.Counter(store).add("a"), add_in_a_loop):
                    with pytest.raises(hotcount.DeadlineError, match=f"{first}.*{says}") as caught:
                        asyncio.run(call()) if asyncio.iscoroutinefunction(call) else call()
                    assert "has the key's slot" not in str(caught.value)


BY_NAME = ("--cluster-preferred-endpoint-type", "hostname")


def test_announced_addresses_are_mapped(tmp_path: Path) -> None:
    config = (*BY_NAME, "--cluster-announce-hostname", "node.invalid")
    with RedisCluster(tmp_path, replicas=False, config=config).started() as running:
        with (
            hotcount.Redis(running.url, timeout=1.5) as store,
            pytest.raises(
                (hotcount.UnavailableError, hotcount.DeadlineError), match=r"node\.invalid"
            ),
        ):
            hotcount.Counter(store).add("a")
        mapped = {f"node.invalid:{node.port}": f"127.0.0.1:{node.port}" for node in running.nodes}
        with hotcount.Redis(running.url, address_map=mapped) as store:
            assert hotcount.Counter(store).add_many(KEYS).tolist() == [1] * 300
            assert store.address_map == mapped


def test_an_endpoint_without_a_host_is_that_of_the_seed(tmp_path: Path) -> None:
    config = ("--cluster-preferred-endpoint-type", "unknown-endpoint")
    with (
        RedisCluster(tmp_path, replicas=False, config=config).started() as running,
        hotcount.Redis(running.url) as store,
    ):
        assert hotcount.Counter(store).add_many(KEYS).tolist() == [1] * 300


def test_an_unknown_endpoint_is_a_config_error(tmp_path: Path) -> None:
    with (
        RedisCluster(tmp_path, replicas=False, config=BY_NAME).started() as running,
        hotcount.Redis(running.url) as store,
        pytest.raises(hotcount.ConfigError, match="cluster-announce-hostname"),
    ):
        hotcount.Counter(store).add("a")


@pytest.mark.parametrize(
    ("addresses", "error"),
    [({"a": "b:1"}, hotcount.ConfigError), ({"a:1": 7}, TypeError), ("a:1", TypeError)],
)
def test_a_bad_address_map_names_itself(addresses: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="address_map"):
        hotcount.Redis("redis+cluster://127.0.0.1", address_map=addresses)


def test_one_node_that_has_all_slots(tmp_path: Path) -> None:
    with (
        RedisCluster(tmp_path, primaries=1, replicas=False).started() as alone,
        hotcount.Redis(alone.url) as store,
    ):
        assert hotcount.Counter(store).add_many(KEYS).tolist() == [1] * 300
        assert hotcount.Limiter(store, "1/minute").hit("anna").allowed


def certificates_for(host: str, folder: Path) -> Certificates:
    folder.mkdir()
    made = Certificates(folder)
    made.sign("server", f"IP:{host}")
    return made


@pytest.mark.parametrize(
    ("host", "password", "tls"),
    [("127.0.0.1", "secret", True), ("::1", None, False), ("::1", "secret", False)],
)
def test_tls_logins_and_ipv6(tmp_path: Path, host: str, password: str | None, tls: bool) -> None:
    signed = certificates_for(host, tmp_path / "tls") if tls else None
    with RedisCluster(
        tmp_path, replicas=False, host=host, password=password, tls=signed
    ).started() as running:
        login = f"default:{password}@" if password else ""
        url = f"{'rediss' if tls else 'redis'}+cluster://{login}{running.hosts}"
        if signed:
            url += f"?ca_file={signed.path('ca.crt')}"
        with hotcount.Redis(url) as store:
            assert "secret" not in repr(store)
            assert hotcount.Counter(store).add_many(KEYS).tolist() == [1] * 300
        if password:
            wrong = url.replace(password, "wrong")
            with hotcount.Redis(wrong) as store, pytest.raises(hotcount.AuthError) as caught:
                hotcount.Counter(store).add("a")
            assert "wrong" not in str(caught.value).replace("WRONGPASS", "")


def test_a_user_without_rights_is_told_so(cluster: RedisCluster) -> None:
    for node in cluster.nodes:
        node.run("ACL", "SETUSER", "app", "on", ">pw", "~app:*", "+@all")
    with hotcount.Redis(cluster.url.replace("//", "//app:pw@"), prefix="app:") as store:
        assert hotcount.Counter(store).add_many(KEYS).tolist() == [1] * 300
    with hotcount.Redis(cluster.url.replace("//", "//app:pw@"), prefix="b:") as store:
        errors = hotcount.Counter(store).add_many(KEYS, errors="return").errors
        assert len(errors) == 300
        assert all(isinstance(error, hotcount.PermissionDeniedError) for error in errors.values())


PAGE = Path(__file__).parents[3] / "docs/how-to/cluster.md"


def test_the_page_about_clusters_does_what_it_shows(
    cluster: RedisCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    placed = first.replace("node1:6379,node2:6379,node3:6379", cluster.hosts)
    assert placed != first
    for node in cluster.nodes:
        node.run("FLUSHALL")
    exec(placed, {})
    assert capsys.readouterr().out == "1\n[1, 1, 1]\n"
    exec(second, {"hotcount": hotcount})


def test_ctrl_c_ends_a_batch(tmp_path: Path) -> None:
    with RedisCluster(tmp_path, replicas=False).started() as running:
        program = f"""
import hotcount, os, signal, threading, time
store = hotcount.Redis({running.url!r}, timeout=30, silence_limit=30)
counter = hotcount.Counter(store)
keys = [f"k{{n}}" for n in range(100)]
counter.add_many(keys)
os.kill({running.nodes[0].pid}, signal.SIGSTOP)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
began = time.monotonic()
try:
    counter.add_many(keys)
except KeyboardInterrupt:
    print(time.monotonic() - began < 10, flush=True)
os._exit(0)
"""
        try:
            done = run_python("-c", program, timeout=60)
        finally:
            running.resume(0)
        assert done.stdout == "True\n", done.stderr
