"""hotcount.Redis("redis+cluster://...", credentials=...): one source of logins for all nodes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import hotcount
import pytest
from hotcount import aio

from tests.faults.proxy import FaultProxy
from tests.support.eventually import eventually
from tests.support.redis_cluster import RedisCluster

pytestmark = pytest.mark.server

USER = "app"
FIRST = "first-canary"
KEYS = [f"photo:{number}" for number in range(100)]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    config = ("--user", USER, "on", f">{FIRST}", "~*", "+@all")
    folder = tmp_path_factory.mktemp("cluster")
    with RedisCluster(folder, replicas=False, config=config).started() as running:
        yield running


class Vault:
    """Where the password stands now; notes how many ask at once."""

    def __init__(self, *passwords: str) -> None:
        self.passwords = list(passwords)  # The last one stays.
        self.asked = 0
        self.inside = 0
        self.most_inside = 0

    def __call__(self) -> tuple[str, str]:
        self.asked += 1
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        time.sleep(0.01)
        self.inside -= 1
        return USER, self.passwords.pop(0) if len(self.passwords) > 1 else self.passwords[0]


def rotate(cluster: RedisCluster, vault: Vault, new: str) -> None:
    old = vault.passwords[0]
    for node in cluster.nodes:
        node.run("ACL", "SETUSER", USER, f">{new}")
    vault.passwords = [new]
    for node in cluster.nodes:
        node.run("ACL", "SETUSER", USER, f"<{old}")
        node.run("CLIENT", "KILL", "USER", USER)


def test_a_password_that_changes_under_load_fails_no_call(cluster: RedisCluster) -> None:
    vault = Vault(FIRST)
    over = threading.Event()
    wrong: list[BaseException] = []
    acknowledged, unknown = [0] * 3, [0] * 3

    def note(index: int, errors: dict[int, hotcount.HotcountError]) -> None:
        lost = [e for e in errors.values() if isinstance(e, hotcount.OutcomeUnknownError)]
        wrong.extend(e for e in errors.values() if e not in lost)
        acknowledged[index] += len(KEYS) - len(errors)
        unknown[index] += len(lost)

    def add(index: int) -> None:
        while not over.is_set():
            note(index, hotcount.Counter(store).add_many(KEYS, errors="return").errors)

    async def add_in_a_loop(index: int) -> None:
        while not over.is_set():
            note(index, (await aio.Counter(store).add_many(KEYS, errors="return")).errors)

    with hotcount.Redis(cluster.url, timeout=20, credentials=vault) as store:
        threads = [threading.Thread(target=add, args=(index,)) for index in range(2)]
        threads.append(threading.Thread(target=lambda: asyncio.run(add_in_a_loop(2))))
        for thread in threads:
            thread.start()
        for number in range(6):
            rotate(cluster, vault, f"canary-{number}")
            time.sleep(0.1)
        over.set()
        for thread in threads:
            thread.join()
        stored = sum(hotcount.Counter(store).get_many(KEYS).tolist())
    assert wrong == []
    assert min(acknowledged) > 0
    assert sum(acknowledged) <= stored <= sum(acknowledged) + sum(unknown)
    assert vault.asked > 6
    assert vault.most_inside == 1, "the nodes share one source"


def test_a_seed_that_ends_the_first_connection_is_asked_once_more(cluster: RedisCluster) -> None:
    with FaultProxy(cluster.nodes[0].socket) as proxy:
        proxy.cut_after(1)
        url = f"redis+cluster://127.0.0.1:{proxy.port}"
        with hotcount.Redis(url, timeout=20, credentials=Vault(FIRST)) as store:
            assert hotcount.Counter(store).add("k") == 1
        assert proxy.fired == 1


def test_a_seed_that_refuses_the_password_asks_once_more(cluster: RedisCluster) -> None:
    seed = f"redis+cluster://127.0.0.1:{cluster.nodes[0].port}"
    vault = Vault("old-canary", FIRST)
    with hotcount.Redis(seed, timeout=20, credentials=vault) as store:
        assert hotcount.Counter(store).add_many(KEYS).tolist() == [1] * len(KEYS)
    with hotcount.Redis(cluster.url, timeout=20, credentials=Vault("wrong-canary")) as store:
        with pytest.raises(hotcount.AuthError) as caught:
            store.ping()
        assert caught.value.code == "WRONGPASS"
        assert "canary" not in repr(caught.value)


def test_one_that_fails_or_hangs_is_named_before_the_deadline(cluster: RedisCluster) -> None:
    goes_on = threading.Event()
    asked = [0]

    def hangs() -> tuple[str, str]:
        asked[0] += 1
        goes_on.wait(60)
        return USER, FIRST

    def fails() -> tuple[str, str]:
        raise LookupError("no token")

    # The time is enough to wait for one login, and not for one of each node.
    with hotcount.Redis(cluster.url, timeout=0.7, connect_timeout=0.3, credentials=hangs) as store:
        with pytest.raises(hotcount.DeadlineError, match=r"credentials\(\) did not return within"):
            hotcount.Counter(store).add("a")
        assert asked == [1]
        goes_on.set()
        eventually(lambda: hotcount.Counter(store).add("a", timeout=10) == 1)
    with (
        hotcount.Redis(cluster.url, timeout=5, credentials=fails) as store,
        pytest.raises(hotcount.AuthError, match=r"redis\+cluster .*raised LookupError: no token"),
    ):
        hotcount.Counter(store).add("a")
