"""All that may happen to a cluster of six nodes, one thing after another, and what it cost."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.eventually import eventually
from tests.support.redis_cluster import ClusterNode, RedisCluster

# The longest time, in seconds, that an answer is in the socket after its primary stops.
IN_SOCKETS = 0.1


@dataclass
class Event:
    """What happened, and the keys whose acknowledged writes it may lose, from when to when."""

    what: str
    copied: float
    began: float
    struck: set[int] = field(default_factory=set)
    lost_until: float = 0.0
    served: float | None = None
    refused: float | None = None
    lasted: float = 0.0

    def may_lose(self, at: float, key: int) -> bool:
        return key in self.struck and self.copied <= at <= self.lost_until


class Storm:
    def __init__(self, cluster: RedisCluster, slots: Sequence[int], *, migrates: bool) -> None:
        """`slots`: of the keys that are told apart, by their numbers."""
        self.cluster = cluster
        self.migrates = migrates
        self.events: list[Event] = []
        self.slots = slots

    def rage(self) -> None:
        """Everything, one thing after another; the cluster is whole again when it returns."""
        for happening in (self.reshard, self.kill, self.pause, self.fail_over, self.cut_off):
            happening()
        self.cluster.wait_ok()

    def _index(self, primary: int) -> int:
        """The node that is the primary of this pair now."""
        for index in (primary, primary + self.cluster.primaries):
            if self.cluster.nodes[index].client.info("replication")["role"] == "master":
                return index
        raise AssertionError("a pair has no primary")

    def _begin(self, what: str, index: int) -> Event:
        self.cluster.wait_ok()
        time.sleep(1)
        port = self.cluster.nodes[index].port
        owners = self.cluster.owners()
        struck = {key for key, slot in enumerate(self.slots) if owners[slot] == port}
        copied = self._copied()
        event = Event(what, copied, time.monotonic(), struck)
        self.events.append(event)
        return event

    def _copied(self) -> float:
        """A time; what was acknowledged before is on every replica."""
        asked = time.monotonic()
        offsets = {
            node: node.client.info("replication")["master_repl_offset"]
            for node in self.cluster.alive()
        }

        def has_all(node: ClusterNode) -> bool:
            info = node.client.info("replication")
            if info["role"] != "master":
                return bool(info["master_link_status"] == "up")
            copies = [info[f"slave{n}"]["offset"] for n in range(info["connected_slaves"])]
            return bool(copies) and all(offset >= offsets[node] for offset in copies)

        eventually(lambda: all(has_all(node) for node in offsets))
        return asked

    def _watch(self, event: Event, index: int, *, reaches: bool = False) -> None:
        """Until its replica serves; and, if clients reach it, until it refuses."""
        heir = self.cluster.nodes[(index + 3) % 6]
        old = self.cluster.nodes[index]

        def seen() -> bool:
            now = time.monotonic()
            if event.refused is None and (not reaches or not is_ok(old)):
                event.refused = now if reaches else event.began
            if event.served is None:
                is_primary = heir.client.info("replication")["role"] == "master"
                event.served = now if is_primary and is_ok(heir) else None
            return event.served is not None and event.refused is not None

        eventually(seen, 30)
        assert event.refused is not None
        event.lost_until = event.refused + IN_SOCKETS

    def reshard(self) -> None:
        source, target = self._index(0), self._index(1)
        own = [
            slot
            for slot, port in enumerate(self.cluster.owners())
            if port == self.cluster.nodes[source].port
        ]
        slots = range(own[0], own[0] + 1000)
        event = self._begin("reshard of 1,000 slots", source)
        move = self.cluster.migrate if self.migrates else self.cluster.reshard
        move(source, target, slots)
        event.lasted = time.monotonic() - event.began

    def kill(self) -> None:
        index = self._index(0)
        event = self._begin("primary killed", index)
        self.cluster.kill(index)
        self._watch(event, index)
        self.cluster.nodes[index].start()

    def pause(self) -> None:
        index = self._index(1)
        event = self._begin("primary paused for 10 s", index)
        self.cluster.pause(index)
        self._watch(event, index)
        time.sleep(max(0.0, event.began + 10 - time.monotonic()))
        self.cluster.resume(index)

    def fail_over(self) -> None:
        index = self._index(2)
        event = self._begin("planned failover", index)
        self.cluster.fail_over((index + 3) % 6)
        event.served = time.monotonic()

    def cut_off(self) -> None:
        index = self._index(2)
        event = self._begin("primary cut off for 8 s", index)
        self.cluster.cut_off(index)
        self._watch(event, index, reaches=True)
        time.sleep(max(0.0, event.began + 8 - time.monotonic()))
        self.cluster.let_back()


def is_ok(node: ClusterNode) -> bool:
    return "cluster_state:ok" in node.run("CLUSTER", "INFO")
