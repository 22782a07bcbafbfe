"""A private primary, its replica and the Sentinels that watch them: started in two seconds."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from tests.support.certificates import Certificates
from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.server_process import ServerProcess
from tests.support.servers import RedisServer, free_port, make_folder, redis_program

SERVICE = "votes"


class Sentinel(ServerProcess):
    """One Sentinel. `config`: lines of its file; it writes into that itself."""

    def __init__(
        self,
        folder: Path,
        config: tuple[str, ...] = (),
        *,
        program: str | None = None,
        password: str | None = None,
        tls: Certificates | None = None,
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self.port = free_port()
        self._password = password
        self._program = program or redis_program()
        self._file = folder / "sentinel.conf"
        lines = [
            *("bind 127.0.0.1", f"dir {folder}", "protected-mode no"),
            *(
                ["port 0", f"tls-port {self.port}", *tls_lines(tls)]
                if tls
                else [f"port {self.port}"]
            ),
            *(f"logfile {folder}/sentinel.log", f"unixsocket {folder}/s.sock", *config),
        ]
        self._file.write_text("\n".join(lines) + "\n")

    def start(self) -> Sentinel:
        self._process = subprocess.Popen(
            [self._program, str(self._file), "--sentinel"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        self.await_start(self.folder / "sentinel.log", 10)
        return self

    def accepts(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False

    def client(self) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=f"{self.folder}/s.sock", socket_timeout=20, password=self._password
        )

    def run(self, *command: Any) -> Any:
        with self.client() as client:
            return client.execute_command(*command)


def tls_lines(certificates: Certificates) -> list[str]:
    """With TLS for its own connections to others too; the certificate is for 127.0.0.1."""
    names = {"cert-file": "server.crt", "key-file": "server.key", "ca-cert-file": "ca.crt"}
    files = [f"tls-{option} {certificates.path(name)}" for option, name in names.items()]
    return [*files, "tls-auth-clients no", "tls-replication yes"]


class SentinelTrio:
    """Three Sentinels, quorum 2, over servers[0], the primary at first, and servers[1].

    `password` is the servers', `sentinel_password` the Sentinels'. Certificates are those of
    `certificates_for_loopback`.
    """

    def __init__(
        self,
        *,
        down_after: int = 1000,
        program: str | None = None,
        password: str | None = None,
        sentinel_password: str | None = None,
        tls: Certificates | None = None,
    ) -> None:
        self._password = password
        self.folder = folder = make_folder("hotcount-sentinel-")
        self.servers = []
        for name in ("first", "second"):
            (folder / name).mkdir()
            port = free_port()
            config = ["--repl-diskless-sync-delay", "0"]
            if password:
                config += ["--requirepass", password, "--masterauth", password]
            if tls:
                config += ["--port", "0", "--tls-port", str(port)]
                config += [word for line in tls_lines(tls) for word in f"--{line}".split()]
            server = RedisServer(folder / name, port=port, program=program, config=tuple(config))
            self.servers.append(server)
        watched: tuple[str, ...] = (
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.servers[0].port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {down_after}",
            f"sentinel failover-timeout {SERVICE} 10000",
        )
        if password:
            watched += (f"sentinel auth-pass {SERVICE} {password}",)
        if sentinel_password:
            watched += (
                f"requirepass {sentinel_password}",
                f"sentinel sentinel-pass {sentinel_password}",
            )
        self.sentinels = [
            Sentinel(
                folder / f"sentinel{n}",
                watched,
                program=program,
                password=sentinel_password,
                tls=tls,
            )
            for n in range(3)
        ]

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.hosts}/{SERVICE}/0"

    @contextlib.contextmanager
    def started(self) -> Iterator[SentinelTrio]:
        """Runs for the block; when it begins the replica follows, and the Sentinels know it and
        each other, so that a failover succeeds."""
        first, second = self.servers
        try:
            first.start()
            second.start()
            self.direct(1).execute_command("REPLICAOF", "127.0.0.1", first.port)
            eventually(lambda: self.role(1) == "slave" and self.follows(1))
            for sentinel in self.sentinels:
                sentinel.start()
            eventually(self._know_all)
            yield self
        finally:
            for process in (*self.sentinels, *self.servers):
                process.remove()
            shutil.rmtree(self.folder, ignore_errors=True)

    def direct(self, index: int) -> redis.Redis:
        """A client of one server that asks no Sentinel."""
        return redis.Redis(
            unix_socket_path=str(self.servers[index].socket),
            socket_timeout=20,
            password=self._password,
        )

    def role(self, index: int) -> str:
        return str(self.direct(index).info("replication")["role"])

    def follows(self, index: int) -> bool:
        return bool(self.direct(index).info("replication").get("master_link_status") == "up")

    def state(self, sentinel: Sentinel) -> dict[str, str]:
        """What SENTINEL MASTER says, by name."""
        fields = sentinel.run("SENTINEL", "MASTER", SERVICE)
        if isinstance(fields, dict):
            return {_text(name): _text(value) for name, value in fields.items()}
        texts = [_text(each) for each in fields]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    def _know_all(self) -> bool:
        states = [self.state(sentinel) for sentinel in self.sentinels]
        return all(
            state["num-other-sentinels"] == "2" and state["num-slaves"] == "1" for state in states
        ) and all(self._sees_replica(sentinel) for sentinel in self.sentinels)

    def _sees_replica(self, sentinel: Sentinel) -> bool:
        found = str(sentinel.run("SENTINEL", "REPLICAS", SERVICE))
        return "s_down" not in found and "disconnected" not in found and "'ok'" in found

    def primary(self) -> int:
        """The index of the server that most Sentinels name."""
        ports = []
        for sentinel in self.sentinels:
            if not sentinel.has_ended():
                found = sentinel.run("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
                ports.append(int(found[1]))
        port = max(ports, key=ports.count)
        return [server.port for server in self.servers].index(port)

    def fail_over(self) -> None:
        """Asks for a failover, and returns when it has been accepted, before it has begun.

        A Sentinel whose last INFO of the replica is a few seconds old, as on a busy machine, says
        NOGOODSLAVE until the next one.
        """
        eventually(self._accepts_failover)
        fired("failover")

    def _accepts_failover(self) -> bool:
        try:
            self.sentinels[0].run("SENTINEL", "FAILOVER", SERVICE)
        except redis.ResponseError as error:
            if not str(error).startswith("NOGOODSLAVE"):
                raise
            return False
        return True

    def await_primary(self, index: int, seconds: float = 30) -> None:
        """Until this server is the primary for all Sentinels that run."""
        port = str(self.servers[index].port)

        def agree() -> bool:
            running = [each for each in self.sentinels if not each.has_ended()]
            return all(self.state(each)["port"] == port for each in running)

        eventually(agree, seconds)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
