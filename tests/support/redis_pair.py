"""A Redis, and the replica that may take its place."""

from pathlib import Path

from tests.faults.proxy import FaultProxy
from tests.support.eventually import eventually
from tests.support.servers import RedisServer, free_port


class RedisPair:
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

    def promote(self) -> None:
        """The replica gets nothing more from its primary."""
        self.standby.execute("REPLICAOF", "NO", "ONE")

    def fail_over(self) -> None:
        self.primary.kill()
        self.proxy.server = self.replica.socket
        self.proxy.heal()

    def stop(self) -> None:
        self.proxy.close()
        self.standby.close()
        self.primary.stop()
        self.replica.stop()
