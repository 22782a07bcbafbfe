"""A private Redis or Valkey Cluster: started in two seconds, and what may happen to one."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import redis

from tests.support.certificates import Certificates
from tests.support.cluster_bus import ClusterBus
from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.redis_sentinel import tls_lines
from tests.support.servers import RedisServer, free_port

SLOTS = 16384
# Milliseconds without an answer after which a node counts as failed.
NODE_TIMEOUT = 2000


class ClusterNode(RedisServer):
    """One node; `run` asks it alone, and follows no redirect."""

    def __init__(
        self,
        folder: Path,
        *config: str,
        program: str | None = None,
        host: str = "127.0.0.1",
        password: str | None = None,
        tls: Certificates | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        folder.mkdir()
        self.host = host
        self.bus = free_port()
        self._password = password
        port = free_port()
        config = ("--bind", host, *config)
        if password:
            config += ("--requirepass", password, "--masterauth", password)
        if tls:
            config += ("--port", "0", "--tls-port", str(port), "--tls-cluster", "yes")
            config += tuple(word for line in tls_lines(tls) for word in f"--{line}".split())
        super().__init__(
            folder,
            port=port,
            program=program,
            environment=environment,
            config=(
                *("--cluster-enabled", "yes", "--cluster-port", str(self.bus)),
                *("--cluster-node-timeout", str(NODE_TIMEOUT), "--enable-debug-command", "yes"),
                # A replica follows after 1 s instead of 6: no election succeeds before.
                # It hears of its offset after 1 s instead of 10: wait_replicas() waits for that.
                *("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", *config),
            ),
        )
        self._client: redis.Redis | None = None

    @property
    def client(self) -> redis.Redis:
        if self._client is None:
            self._client = redis.Redis(
                unix_socket_path=str(self.socket), socket_timeout=20, password=self._password
            )
        return self._client

    def run(self, *command: Any) -> Any:
        reply = self.client.execute_command(*command)
        return reply.decode() if isinstance(reply, bytes) else reply

    @property
    def id(self) -> str:
        return str(self.run("CLUSTER", "MYID"))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def remove(self) -> None:
        if self._client is not None:
            self._client.close()
        super().remove()


class RedisCluster:
    """Primaries, which share the slots evenly, and behind them as many replicas or none.

    Node i + `primaries` is the replica of node i at first.
    """

    def __init__(
        self,
        folder: Path,
        *,
        primaries: int = 3,
        replicas: bool = True,
        program: str | None = None,
        config: tuple[str, ...] = (),
        host: str = "127.0.0.1",
        password: str | None = None,
        tls: Certificates | None = None,
        relayed: bool = False,
        replica_environment: dict[str, str] | None = None,
    ) -> None:
        """`relayed`: the bus goes through this process, for cut_off()."""
        self.primaries = primaries
        count = 2 * primaries if replicas else primaries
        self.relay = ClusterBus(count) if relayed else None
        self.nodes = [
            ClusterNode(
                folder / f"node{number}",
                *config,
                *(
                    ("--cluster-announce-bus-port", str(self.relay.announced[number]))
                    if self.relay
                    else ()
                ),
                program=program,
                host=host,
                password=password,
                tls=tls,
                environment=replica_environment if number >= primaries else None,
            )
            for number in range(count)
        ]

    @property
    def hosts(self) -> str:
        """Of all nodes, as a URL has them."""
        return ",".join(
            f"[{node.host}]:{node.port}" if ":" in node.host else f"{node.host}:{node.port}"
            for node in self.nodes
        )

    @property
    def url(self) -> str:
        """Without a password and without TLS."""
        return f"redis+cluster://{self.hosts}"

    @contextlib.contextmanager
    def started(self) -> Iterator[RedisCluster]:
        """Runs for the block; every replica follows its primary when it begins."""
        try:
            self.start()
            yield self
        finally:
            self.remove()

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        self._join()

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()
        if self.relay:
            self.relay.stop()

    def _join(self) -> None:
        first, *others = self.nodes
        for number, node in enumerate(self.nodes):
            node.run("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(self.nodes[: self.primaries]):
            begin, end = (SLOTS * (number + n) // self.primaries for n in (0, 1))
            node.run("CLUSTER", "ADDSLOTSRANGE", begin, end - 1)
        buses = [node.bus for node in self.nodes]
        if self.relay:
            self.relay.start([node.id for node in self.nodes], buses)
            buses = self.relay.announced
        for node, bus in zip(others, buses[1:], strict=True):
            first.run("CLUSTER", "MEET", node.host, node.port, bus)
        # A replica must have heard of its primary.
        eventually(lambda: all(self._knows_all(node) for node in self.nodes))
        for number, node in enumerate(self.nodes[self.primaries :]):
            node.run("CLUSTER", "REPLICATE", self.nodes[number].id)
        self.wait_ok()
        self.wait_replicas()

    def join(self, new: ClusterNode) -> None:
        """Starts a node without slots, which is among `nodes`. Returns when all reach it."""
        new.start()
        self.nodes[0].run("CLUSTER", "MEET", new.host, new.port, new.bus)
        eventually(lambda: all(self._knows_all(node) for node in self.nodes))
        self.wait_ok()

    def _knows_all(self, node: ClusterNode) -> bool:
        nodes = node.run("CLUSTER", "NODES")
        return len(nodes.splitlines()) == len(self.nodes) and "handshake" not in nodes

    def alive(self) -> list[ClusterNode]:
        return [node for node in self.nodes if not node.has_ended()]

    def wait_ok(self, seconds: float = 20) -> None:
        """Until all nodes that run serve, and agree who owns which slot."""
        eventually(self._agree, seconds)

    def _agree(self) -> bool:
        if not all("cluster_state:ok" in node.run("CLUSTER", "INFO") for node in self.alive()):
            return False
        return len({tuple(self.owners(node)) for node in self.alive()}) == 1

    def wait_replicas(self, seconds: float = 60) -> None:
        """Until every primary's replicas have acknowledged all that it had written when this began:
        no election succeeds before they follow, and a primary sends them nothing before their first
        ACK.

        Not until the offsets are equal: a primary pings once a second and is acknowledged once a
        second, so that they are equal for a part of each second, and the parts of several primaries
        may never meet.
        """
        written: dict[int, int] = {}

        def follows(node: ClusterNode) -> bool:
            info = node.client.info("replication")
            if info["role"] != "master":
                return bool(info["master_link_status"] == "up")
            wanted = max(1, written.setdefault(node.port, info["master_repl_offset"]))
            there = [info[f"slave{n}"]["offset"] for n in range(info["connected_slaves"])]
            return all(offset >= wanted for offset in there)

        eventually(lambda: all(follows(node) for node in self.alive()), seconds)

    def owners(self, asked: ClusterNode | None = None) -> list[int | None]:
        """By slot: the port of its owner, as that node (default: any) says."""
        owners: list[int | None] = [None] * SLOTS
        for begin, end, owner, *_ in (asked or self.alive()[0]).run("CLUSTER", "SLOTS"):
            owners[begin : end + 1] = [owner[1]] * (end + 1 - begin)
        return owners

    def owner(self, slot: int) -> ClusterNode:
        port = self.owners()[slot]
        return next(node for node in self.nodes if node.port == port)

    # -- what may happen to it

    def kill(self, index: int) -> None:
        self.nodes[index].kill()

    def pause(self, index: int) -> None:
        self.nodes[index].send_signal(signal.SIGSTOP)

    def wait_for_heir(self, index: int) -> None:
        """Until the replica of this primary has taken its place, and all other nodes know."""
        heir = self.nodes[index + self.primaries]
        first = SLOTS * index // self.primaries
        eventually(lambda: bool(heir.client.info("replication")["role"] == "master"))
        others = [node for node in self.alive() if node is not self.nodes[index]]
        eventually(lambda: all(self.owners(node)[first] == heir.port for node in others))

    def resume(self, index: int) -> None:
        self.nodes[index].send_signal(signal.SIGCONT)

    def cut_off(self, index: int) -> None:
        """The other nodes do not reach this primary, and its replica is sent nothing; clients reach
        it."""
        assert self.relay
        self.hold_replicas(index)
        self.relay.cut_off(index)
        fired("cut off")

    def hold_replicas(self, index: int) -> None:
        """From here on this primary's replicas are sent nothing that it writes."""
        held = self._replicas_of(index)
        for node in held:
            node.run("CONFIG", "SET", "masteruser", "nobody")
            node.run("CONFIG", "SET", "masterauth", "nothing")
        for node in held:
            node.run("CLIENT", "KILL", "TYPE", "master")

    def let_back(self) -> None:
        assert self.relay
        self.let_replicas_follow()
        self.relay.let_back()

    def let_replicas_follow(self) -> None:
        for node in self.alive():
            node.run("CONFIG", "SET", "masteruser", "")
            node.run("CONFIG", "SET", "masterauth", "")

    def _replicas_of(self, index: int) -> list[ClusterNode]:
        port = self.nodes[index].port
        return [
            node
            for node in self.alive()
            if node.client.info("replication").get("master_port") == port
        ]

    def fail_over(self, index: int) -> None:
        """A planned failover: this replica takes its primary's place. Returns when all nodes know.

        A node gives up a planned failover that has taken 5 s, as it may on a busy machine, and
        says so to its log alone: it is asked again.
        """
        replica = self.nodes[index]
        expires = 0.0

        def has_taken_over() -> bool:
            nonlocal expires
            if replica.client.info("replication")["role"] == "master":
                return True
            if time.monotonic() > expires:
                replica.run("CLUSTER", "FAILOVER")
                expires = time.monotonic() + 6
            return False

        eventually(has_taken_over, 40)
        self.wait_ok()

    def reshard(self, source: int, target: int, slots: range) -> None:
        """Moves slots with their keys, as redis-cli does: while each one moves, the source answers
        ASK for keys that are gone, and both TRYAGAIN for scripts with some of each."""
        for slot in slots:
            self.begin_moving(source, target, slot)
            self.finish_moving(source, target, slot)

    def begin_moving(self, source: int, target: int, slot: int) -> None:
        self.nodes[target].run("CLUSTER", "SETSLOT", slot, "IMPORTING", self.nodes[source].id)
        self.nodes[source].run("CLUSTER", "SETSLOT", slot, "MIGRATING", self.nodes[target].id)

    def finish_moving(self, source: int, target: int, slot: int, *, at_a_time: int = 10) -> None:
        here, there = self.nodes[source], self.nodes[target]
        while keys := here.run("CLUSTER", "GETKEYSINSLOT", slot, at_a_time):
            self.move_keys(source, target, keys)
        for node in (there, here):
            node.run("CLUSTER", "SETSLOT", slot, "NODE", there.id)

    def move_keys(self, source: int, target: int, keys: Sequence[Any]) -> None:
        there = self.nodes[target]
        where = (there.host, there.port, "", 0, 5000)
        self.nodes[source].run("MIGRATE", *where, "KEYS", *keys)

    def begin_migrating(self, source: int, target: int, slots: range) -> None:
        """Valkey 9."""
        where = (slots[0], slots[-1], "NODE", self.nodes[target].id)
        self.nodes[source].run("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *where)

    def cancel_migrating(self, source: int) -> bool:
        """Valkey 9: ends those of the node that have not moved their slots; whether there were
        any. Returns when their targets would take the slots again."""
        with contextlib.suppress(redis.ResponseError):  # No migrations ongoing.
            self.nodes[source].run("CLUSTER", "CANCELSLOTMIGRATIONS")
            fired("migration cancelled")
            eventually(lambda: not any(map(self._is_importing, self.nodes)))
            return True
        return False

    @staticmethod
    def _is_importing(node: ClusterNode) -> bool:
        ended = {"success", "failed", "cancelled"}
        jobs = node.client.execute_command("CLUSTER", "GETSLOTMIGRATIONS")
        return any(
            job[b"operation"] == b"IMPORT" and job[b"state"].decode() not in ended for job in jobs
        )

    def mend_slots(self) -> None:
        """As an operator does after a reshard that was interrupted."""
        node = self.nodes[0]
        command = ["redis-cli", "--cluster", "fix", f"{node.host}:{node.port}", "--cluster-yes"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        self.wait_ok()

    def migrate(self, source: int, target: int, slots: range) -> None:
        """Valkey 9: moves slots and their keys in one step. Returns when they have moved."""
        self.begin_migrating(source, target, slots)
        port = self.nodes[target].port
        eventually(lambda: all(self.owners(self.nodes[source])[slot] == port for slot in slots))


class SpareCluster:
    """The cluster of the next test, made while one runs: a node takes no writes in its first two
    seconds, for which each test would wait."""

    def __init__(self, make_folder: Callable[[], Path]) -> None:
        self._make_folder = make_folder
        self._making = ThreadPoolExecutor(1)
        self._options: dict[str, Any] = {}
        self._next: Future[RedisCluster] | None = None

    @contextlib.contextmanager
    def taken(self, **options: Any) -> Iterator[RedisCluster]:
        """One of these options, for the block. The next is taken to have the same."""
        if self._next is None or self._options != options:
            self.remove()
            self._begin(options)
        assert self._next is not None
        cluster = self._next.result()
        self._begin(options, after=0.5)  # The test's first calls do not meet the start of servers.
        try:
            yield cluster
        finally:
            cluster.remove()

    def _begin(self, options: dict[str, Any], after: float = 0) -> None:
        self._options = options
        self._next = self._making.submit(self._make, self._make_folder(), options, after)

    @staticmethod
    def _make(folder: Path, options: dict[str, Any], after: float) -> RedisCluster:
        time.sleep(after)
        cluster = RedisCluster(folder, **options)
        try:
            cluster.start()
        except BaseException:
            cluster.remove()
            raise
        return cluster

    def remove(self) -> None:
        made, self._next = self._next, None
        if made is not None and made.exception() is None:
            made.result().remove()

    def close(self) -> None:
        self.remove()
        self._making.shutdown()
