"""Adds on a cluster whose slots move and whose primaries are replaced, with an audit.

Each counter's value lies between what was acknowledged and that with what is unknown.
"""

import asyncio
import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import hotcount
import hotcount.aio
import pytest
from hotcount import _doctor_cluster
from redis.crc import key_slot

from tests.support.eventually import BUSY, eventually
from tests.support.redis_cluster import ClusterNode, RedisCluster
from tests.support.servers import valkey_program
from tests.support.together import beside, in_threads

pytestmark = [pytest.mark.server, pytest.mark.timed]

KEYS = [f"k{number}" for number in range(200)]
LATE = (hotcount.UnavailableError, hotcount.DeadlineError)


class Ledger:
    """What callers were told, by any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.failed: list[BaseException] = []
        self.wrong: list[BaseException] = []
        self.successes: list[tuple[float, str]] = []

    @property
    def troubles(self) -> list[Any]:
        """What failed, and keys of which an add is unknown."""
        return [*self.failed, *self.unknown]

    def told(self, key: str, error: BaseException | None) -> None:
        with self._lock:
            if error is None:
                self.acknowledged[key] += 1
                self.successes.append((time.monotonic(), key))
            elif isinstance(error, hotcount.OutcomeUnknownError):
                self.unknown[key] += 1
            elif isinstance(error, LATE):
                self.failed.append(error)
            else:
                self.wrong.append(error)

    def check(
        self,
        stored: dict[str, int],
        stopped: tuple[float, float] | None = None,
        keys: Collection[str] = KEYS,
    ) -> None:
        """For each key: acknowledged <= stored <= acknowledged + unknown. `stopped`: a primary was
        stopped and stood still by then, and its replica may lack what was acknowledged just before
        and meanwhile. `keys`: those that it may have had."""
        assert not self.wrong
        assert self.acknowledged
        late: Counter[str] = Counter()
        if stopped is not None:
            begin, end = stopped[0] - 0.1, stopped[1] + 0.1
            late.update(k for at, k in self.successes if begin < at < end and k in keys)
        for key, count in stored.items():
            known, may_be = self.acknowledged[key], self.unknown[key]
            assert known - late[key] <= count <= known + may_be, (key, known, may_be, late[key])


def add_in_threads(store: hotcount.Redis, ledger: Ledger, stop: threading.Event) -> None:
    counter = hotcount.Counter(store)

    def run(seed: int) -> None:
        draw = random.Random(seed)
        while not stop.is_set():
            if draw.random() < 0.05:
                keys = draw.choices(KEYS, k=20)
                batch = counter.add_many(keys, errors="return")
                for index, key in enumerate(keys):
                    ledger.told(key, batch.errors.get(index))
                continue
            key = draw.choice(KEYS)
            try:
                counter.add(key)
            except hotcount.HotcountError as error:
                ledger.told(key, error)
            else:
                ledger.told(key, None)

    in_threads(run, range(4))()


def add_in_a_loop(store: hotcount.Redis, ledger: Ledger, stop: threading.Event) -> None:
    async def run(counter: hotcount.aio.Counter, seed: int) -> None:
        draw = random.Random(seed)
        while not stop.is_set():
            key = draw.choice(KEYS)
            try:
                await counter.add(key)
            except hotcount.HotcountError as error:
                ledger.told(key, error)
            else:
                ledger.told(key, None)

    async def main() -> None:
        counter = hotcount.aio.Counter(store)
        await asyncio.gather(*(run(counter, seed) for seed in range(16)))

    asyncio.run(main())


Callers = Callable[[hotcount.Redis, Ledger, threading.Event], None]
CALLERS = pytest.mark.parametrize("callers", [add_in_threads, add_in_a_loop])


def under_adds(
    cluster: RedisCluster,
    callers: Callers,
    event: Callable[[], None],
    *,
    stops: bool = False,
) -> Ledger:
    """Runs `event` while they add, and audits. `stops`: it stops a primary at once."""
    ledger = Ledger()
    with hotcount.Redis(cluster.url, timeout=10) as store:
        with beside(partial(callers, store, ledger)):
            time.sleep(0.5)
            began = time.monotonic()
            event()
            time.sleep(0.5)
        ledger.check(stored(store), (began, began) if stops else None)
    return ledger


def stored(store: hotcount.Redis) -> dict[str, int]:
    return dict(zip(KEYS, hotcount.Counter(store).get_many(KEYS).tolist(), strict=True))


@CALLERS
def test_slots_move_and_no_call_fails(cluster: RedisCluster, callers: Callers) -> None:
    def move() -> None:
        own = [slot for slot, port in enumerate(cluster.owners()) if port == cluster.nodes[0].port]
        cluster.reshard(0, 1, range(own[0], own[0] + 1000))
        cluster.reshard(1, 2, range(own[0], own[0] + 300))

    assert not under_adds(cluster, callers, move).troubles


@CALLERS
def test_a_primary_is_killed(cluster: RedisCluster, callers: Callers) -> None:
    def kill() -> None:
        cluster.kill(0)
        cluster.wait_ok()

    under_adds(cluster, callers, kill, stops=True)


@CALLERS
def test_a_planned_failover_loses_nothing(cluster: RedisCluster, callers: Callers) -> None:
    assert not under_adds(cluster, callers, lambda: cluster.fail_over(3)).troubles


@CALLERS
def test_a_paused_primary_that_resumes_acknowledges_nothing(
    cluster: RedisCluster, callers: Callers
) -> None:
    def pause() -> None:
        cluster.pause(0)
        cluster.wait_for_heir(0)
        time.sleep(1)  # Its callers go on elsewhere.
        cluster.resume(0)
        cluster.wait_ok()

    under_adds(cluster, callers, pause, stops=True)


def test_an_idle_client_believes_no_primary_that_was_replaced(cluster: RedisCluster) -> None:
    with hotcount.Redis(cluster.url, timeout=8) as store:
        counter = hotcount.Counter(store)
        before = counter.add_many(KEYS)
        assert before.tolist() == [1] * len(KEYS)
        cluster.pause(0)
        cluster.wait_for_heir(0)
        ledger, stop = Ledger(), threading.Event()
        thread = threading.Thread(target=add_in_threads, args=(store, ledger, stop))
        thread.start()
        time.sleep(0.2)
        cluster.resume(0)
        cluster.wait_ok()
        stop.set()
        thread.join()
        ledger.check({key: count - 1 for key, count in stored(store).items()})


@pytest.mark.parametrize("many", [False, True])
def test_a_call_that_was_given_up_keeps_no_slot_of_its_node(
    cluster: RedisCluster, many: bool
) -> None:
    """Its node stands still, and no later call comes there: nobody reads what it owes."""
    slots = {key: key_slot(f"count:{key}".encode()) for key in KEYS}
    owners = cluster.owners()
    ports = [node.port for node in cluster.nodes]
    away = [key for key in KEYS if owners[slots[key]] == ports[0]][:2]
    moving = next(key for key in KEYS if owners[slots[key]] == ports[1])
    with hotcount.Redis(cluster.url, timeout=10) as store:
        counter = hotcount.Counter(store)
        counter.add_many([*away, moving])
        cluster.wait_replicas()
        cluster.pause(0)
        add = partial(counter.add_many, away) if many else partial(counter.add, away[0])
        with pytest.raises(hotcount.BatchError if many else hotcount.OutcomeUnknownError):
            add(timeout=0.3)
        # The client asks for a map when a slot of the others has moved.
        others = [cluster.nodes[1], cluster.nodes[2]]
        eventually(lambda: all(cluster.owners(node)[slots[away[0]]] == ports[3] for node in others))
        cluster.reshard(1, 2, range(slots[moving], slots[moving] + 1))
        # Its new node has another epoch: it may have been replaced since it was heard last.
        with contextlib.suppress(hotcount.OutcomeUnknownError):
            counter.add(moving)
        assert [counter.add(key, timeout=5) for key in away] == [2, 2]


@CALLERS
def test_valkey_moves_slots_in_one_step(tmp_path: Path, callers: Callers) -> None:
    with RedisCluster(tmp_path, program=valkey_program()).started() as cluster:

        def move() -> None:
            own = [s for s, port in enumerate(cluster.owners()) if port == cluster.nodes[0].port]
            cluster.migrate(0, 1, range(own[0], own[0] + 1000))
            cluster.migrate(1, 2, range(own[0], own[0] + 300))

        assert not under_adds(cluster, callers, move).troubles


TAGGED = [f"{{t}}{number}" for number in range(40)]


def half_moved(cluster: RedisCluster) -> tuple[int, int, int, list[Any]]:
    """The slot of TAGGED, half of which moves: its number, source and target, what has moved."""
    slot = cluster.nodes[0].run("CLUSTER", "KEYSLOT", "t")
    source = cluster.nodes.index(cluster.owner(slot))
    target = (source + 1) % cluster.primaries
    cluster.begin_moving(source, target, slot)
    moved = cluster.nodes[source].run("CLUSTER", "GETKEYSINSLOT", slot, 20)
    cluster.move_keys(source, target, moved)
    return slot, source, target, moved


def test_a_slot_that_has_half_of_its_keys_elsewhere(cluster: RedisCluster) -> None:
    with hotcount.Redis(cluster.url, timeout=8) as store:
        counter = hotcount.Counter(store)
        sets = hotcount.LiveSets(store)
        assert counter.add_many(TAGGED).tolist() == [1] * 40
        with sets.rebuild("{t}", ttl=60) as building:
            building.add("first", 1)
        slot, source, target, _ = half_moved(cluster)
        # ASK for what has gone, and for what there never was.
        assert counter.add_many(TAGGED).tolist() == [2] * 40
        assert counter.add("{t}new") == 1
        assert counter.get_many(["{t}new", *TAGGED]).tolist() == [1] + [2] * 40
        assert cluster.owner(slot) is cluster.nodes[source], "nothing has moved yet"

        def finish() -> None:
            time.sleep(0.5)
            cluster.finish_moving(source, target, slot)

        # A script of several keys, one of which is nowhere: TRYAGAIN of both, until the end.
        thread = threading.Thread(target=finish)
        thread.start()
        op_id = hotcount.new_op_id()
        added = [counter.add(TAGGED[0], 5, op_id=op_id) for _ in range(2)]
        assert sets.upsert("{t}", "second", 2)
        thread.join()
        assert added == [7, 7]
        assert cluster.owner(slot) is cluster.nodes[target]
        assert counter.add_many(TAGGED).tolist() == [8] + [3] * 39


def test_a_node_that_was_emptied_imports_a_slot_again(tmp_path: Path) -> None:
    """It had slots in a map that the client has seen, and was not replaced."""
    stays = ("--cluster-allow-replica-migration", "no")  # A primary, although it has no slots.
    with RedisCluster(tmp_path, replicas=False, config=stays).started() as cluster:
        new = ClusterNode(tmp_path / "new", *stays)
        cluster.nodes.append(new)
        cluster.join(new)
        slot = cluster.nodes[0].run("CLUSTER", "KEYSLOT", "t")
        source = cluster.nodes.index(cluster.owner(slot))
        with hotcount.Redis(cluster.url, timeout=8) as store:
            counter = hotcount.Counter(store)
            assert counter.add("{t}new") == 1
            cluster.reshard(source, 3, range(slot, slot + 1))
            cluster.wait_ok()
            assert counter.add("{t}new") == 2
            cluster.reshard(3, source, range(slot, slot + 1))
            cluster.wait_ok()
            for _ in range(2):  # Each asks for a map, as the source was silent.
                time.sleep(6)
                assert counter.get("{t}new") == 2
            cluster.begin_moving(source, 3, slot)
            cluster.move_keys(source, 3, [b"count:{t}new"])
            assert counter.add("{t}new") == 3
            assert counter.get("{t}new") == 3
            cluster.finish_moving(source, 3, slot)
            assert counter.add("{t}new") == 4


def test_a_node_without_slots_imports_its_first_one(tmp_path: Path) -> None:
    """It answers what ASK sends it, and no map gives it a slot until the move ends."""
    with RedisCluster(tmp_path, replicas=False).started() as cluster:
        new = ClusterNode(tmp_path / "new")
        cluster.nodes.append(new)
        cluster.join(new)
        slot = cluster.nodes[0].run("CLUSTER", "KEYSLOT", "t")
        source = cluster.nodes.index(cluster.owner(slot))
        cluster.begin_moving(source, 3, slot)

        async def add() -> int:
            async with hotcount.aio.Redis(cluster.url, timeout=8) as store:
                return await hotcount.aio.Counter(store).add("{t}new")

        with hotcount.Redis(cluster.url, timeout=8) as store:
            counter = hotcount.Counter(store)
            assert counter.add("{t}new") == 1
            assert counter.get("{t}new") == 1
            assert asyncio.run(add()) == 2
            time.sleep(2)  # Longer than silence_limit: the new node is doubted again.
            assert counter.add("{t}new") == 3
            cluster.finish_moving(source, 3, slot)
            assert counter.add("{t}new") == 4


def doctor_says(cluster: RedisCluster) -> list[str]:
    """What is said of slots that move."""
    findings = _doctor_cluster.examine(cluster.url)
    return [each.found for each in findings if each.check == "moving slots"]


@pytest.mark.parametrize("forgets", [False, True], ids=["both-know", "target-forgets"])
def test_a_reshard_that_was_interrupted_is_named(cluster: RedisCluster, forgets: bool) -> None:
    """Half of the slot's keys have moved. `forgets`: a replica has taken the target's place, and
    does not know of the move, so that each of both sends what has moved to the other one."""
    with hotcount.Redis(cluster.url, timeout=10) as store:
        counter = hotcount.Counter(store)
        assert counter.add_many(TAGGED).tolist() == [1] * 40
        assert doctor_says(cluster) == []
        slot, source, target, moved = half_moved(cluster)
        if forgets:
            cluster.nodes[target].run("CLUSTER", "SETSLOT", slot, "STABLE")
        (said,) = doctor_says(cluster)
        ends = [f"127.0.0.1:{cluster.nodes[index].port}" for index in (source, target)]
        assert said.startswith(f"moving slots: {slot} from {ends[0]} to {ends[1]};")

        gone = {key for key in TAGGED if f"count:{key}".encode() in moved} if forgets else set()
        assert len(gone) == (20 if forgets else 0)
        batch = counter.add_many(TAGGED, errors="return", timeout=1 if forgets else None)
        assert {TAGGED[index] for index in batch.errors} == gone
        for key in [*sorted(gone)[:1], TAGGED[0]]:
            began = time.monotonic()
            # A script of two keys, of which one is nowhere. Unknown: it was just sent on.
            with pytest.raises((*LATE, hotcount.OutcomeUnknownError)):
                counter.add(key, op_id=hotcount.new_op_id(), timeout=1)
            assert time.monotonic() - began < 1 + BUSY
        assert counter.add_many(KEYS).tolist() == [1] * len(KEYS)

        cluster.mend_slots()
        assert doctor_says(cluster) == []
        counted = [2 if key in gone else 3 for key in TAGGED]
        assert counter.add_many(TAGGED).tolist() == counted
        assert counter.add(TAGGED[0], op_id=hotcount.new_op_id()) == counted[0] + 1


@CALLERS
def test_valkey_moves_no_slot_by_a_migration_that_is_cancelled(
    tmp_path: Path, callers: Callers
) -> None:
    # Without replicas: a failover, as a busy machine brings it about, loses adds.
    nodes = RedisCluster(tmp_path, program=valkey_program(), replicas=False)
    with nodes.started() as cluster:
        # So much that it is still being copied when the cancel comes.
        slot = cluster.nodes[0].run("CLUSTER", "KEYSLOT", "t")
        source = cluster.nodes.index(cluster.owner(slot))
        with cluster.nodes[source].client.pipeline(transaction=False) as filling:
            for number in range(20_000):
                filling.set(f"{{t}}{number}", 1000 * "x")
            filling.execute()
        owners = cluster.owners()

        def cancel() -> None:
            for number in range(10):
                cluster.begin_migrating(source, (source + 1) % 3, range(slot, slot + 100))
                time.sleep(0.001 * number)
                assert cluster.cancel_migrating(source)

        assert not under_adds(cluster, callers, cancel).troubles
        assert cluster.owners() == owners
        assert doctor_says(cluster) == []


def test_a_primary_without_a_majority_acknowledges_nothing_lost(cluster: RedisCluster) -> None:
    others = [1, 2, 3, 4, 5]

    def cut_off() -> None:
        for index in others:
            cluster.pause(index)
        eventually(lambda: "cluster_state:fail" in cluster.nodes[0].run("CLUSTER", "INFO"))
        time.sleep(1)  # It refuses.
        for index in others:
            cluster.resume(index)
        cluster.wait_ok()

    assert under_adds(cluster, add_in_threads, cut_off).acknowledged


def test_a_primary_that_is_cut_off_acknowledges_until_it_refuses(tmp_path: Path) -> None:
    with RedisCluster(tmp_path, relayed=True).started() as cluster:
        ledger, stop = Ledger(), threading.Event()
        with hotcount.Redis(cluster.url, timeout=15) as store:
            thread = threading.Thread(target=add_in_threads, args=(store, ledger, stop))
            thread.start()
            time.sleep(0.5)
            port, owners = cluster.nodes[0].port, cluster.owners()
            cut = {key for key in KEYS if owners[key_slot(f"count:{key}".encode())] == port}
            began = time.monotonic()
            cluster.cut_off(0)
            eventually(lambda: "cluster_state:fail" in cluster.nodes[0].run("CLUSTER", "INFO"))
            refused = time.monotonic()
            eventually(lambda: cluster.nodes[3].client.info("replication")["role"] == "master")
            cluster.let_back()
            cluster.wait_ok()
            time.sleep(0.5)
            stop.set()
            thread.join()
            ledger.check(stored(store), (began, refused), cut)
    assert not ledger.failed
    assert refused - began > 1, "it went on meanwhile"


def test_calls_of_a_cluster_that_is_down_say_so(cluster: RedisCluster) -> None:
    with hotcount.Redis(cluster.url, timeout=1) as store:
        counter = hotcount.Counter(store)
        assert counter.add_many(KEYS).tolist() == [1] * len(KEYS)
        for index in (0, 3):
            cluster.kill(index)
        eventually(
            lambda: all(
                "cluster_state:fail" in node.run("CLUSTER", "INFO") for node in cluster.alive()
            )
        )
        began = time.monotonic()
        batch = counter.add_many(KEYS, errors="return")
        assert time.monotonic() - began < 1 + BUSY
        assert len(batch.errors) == len(KEYS)
        for error in batch.errors.values():
            # Unknown: it was just sent again.
            assert isinstance(error, (*LATE, hotcount.OutcomeUnknownError))
        assert any("CLUSTERDOWN" in str(error) for error in batch.errors.values())


def maps_asked(cluster: RedisCluster) -> int:
    stats = [node.client.info("commandstats") for node in cluster.alive()]
    return sum(each.get("cmdstat_cluster|slots", {"calls": 0})["calls"] for each in stats)


async def add_once_in_a_loop(url: str) -> None:
    async with hotcount.aio.Redis(url) as store:
        await hotcount.aio.Counter(store).add("k")
        await asyncio.sleep(2.5)


def add_once_in_a_thread(url: str) -> None:
    with hotcount.Redis(url) as store:
        hotcount.Counter(store).add("k")
        time.sleep(2.5)


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_the_first_answer_of_a_node_costs_few_maps(cluster: RedisCluster, in_a_loop: bool) -> None:
    before = maps_asked(cluster)
    if in_a_loop:
        asyncio.run(add_once_in_a_loop(cluster.url))
    else:
        add_once_in_a_thread(cluster.url)
    # The map of the first call, its confirmation, and one each that both wanted meanwhile.
    assert 1 <= maps_asked(cluster) - before <= 6
