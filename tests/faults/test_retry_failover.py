"""A retry queue whose Redis fails over to a replica that is behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hotcount
import pytest
from hotcount import Queued, RetryQueue

from tests.faults.proxy import SERVER_TO_CLIENT, FaultProxy
from tests.support.eventually import eventually
from tests.support.servers import RedisServer, free_port

pytestmark = pytest.mark.server

TTLS = pytest.mark.parametrize("ttl", [None, 600.0], ids=["immortal", "ttl"])


class Pair:
    """A primary behind a proxy, and its replica."""

    def __init__(self, folder: Path) -> None:
        for name in ("primary", "replica"):
            (folder / name).mkdir()
        self.primary = RedisServer(
            folder / "primary", port=free_port(), config=("--repl-diskless-sync-delay", "0")
        ).start()
        self.replica = RedisServer(
            folder / "replica", config=("--replicaof", f"127.0.0.1 {self.primary.port}")
        ).start()
        self.proxy = FaultProxy(self.primary.socket)
        self.standby = self.replica.redis(timeout=20)
        eventually(lambda: b"master_link_status:up" in self.standby.execute("INFO"), 20)

    def has_replicated(self, value: bytes) -> bool:
        return bool(self.standby.execute("GET", "c:k") == value)

    def promote(self) -> None:
        """The replica gets nothing more from its primary."""
        self.standby.execute("REPLICAOF", "NO", "ONE")

    def fail_over(self) -> None:
        self.primary.kill()
        self.proxy.server = self.replica.socket
        self.proxy.heal()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.proxy.close()
    made.standby.close()
    made.primary.stop()
    made.replica.stop()


@TTLS
def test_an_add_that_was_replicated_and_not_answered_is_counted_once_after_a_failover(
    pair: Pair, ttl: float | None
) -> None:
    store = hotcount.Redis(pair.proxy.url, timeout=0.5)
    counter = hotcount.Counter(store, ttl=ttl, retry=RetryQueue(), prefix="c")
    assert counter.add("k", 5) == 5
    pair.proxy.hold(SERVER_TO_CLIENT)
    assert isinstance(counter.add("k", 100), Queued)
    eventually(lambda: pair.has_replicated(b"105"), 20)
    pair.promote()
    pair.fail_over()
    eventually(lambda: counter.retry_stats().waiting == 0, 20)
    assert counter.get("k") == 105
    assert counter.retry_stats().replayed == 1


@TTLS
def test_a_failover_loses_only_what_was_answered_and_not_replicated(
    pair: Pair, ttl: float | None
) -> None:
    store = hotcount.Redis(pair.proxy.url, timeout=0.5)
    counter = hotcount.Counter(store, ttl=ttl, retry=RetryQueue(), prefix="c")
    assert counter.add("k", 5) == 5
    eventually(lambda: pair.has_replicated(b"5"), 20)
    pair.promote()
    assert counter.add("k", 3) == 8
    pair.primary.kill()
    waiting: object = counter.add("k", 10)
    assert isinstance(waiting, Queued)
    pair.fail_over()
    eventually(lambda: counter.retry_stats().waiting == 0, 20)
    assert counter.get("k") == 5 + 10
    assert counter.add("k") == 16
