"""Private servers that end with an ExitStack, and slow links to them: the proxy of the fault tests,
in a process of its own."""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Union

from tests.faults.proxy import FaultProxy
from tests.support.mariadb_server import MariaDbServer
from tests.support.mysql_server import MySqlServer
from tests.support.servers import PostgresServer, RedisServer

Server = Union[PostgresServer, MariaDbServer]


def say(line: str) -> None:
    print(f"{time.strftime('%X')} {line}", file=sys.stderr, flush=True)


def start_redis(stack: ExitStack, *config: str, port: int = 0) -> RedisServer:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hotcount-")))
    redis = RedisServer(folder, config=config, port=port)
    stack.callback(redis.stop)
    return redis.start()


def start_database(group: str, stack: ExitStack, *config: str) -> Server:
    """postgres, mariadb or mysql, with full durability unless `config` says else."""
    if group == "postgres":
        postgres = PostgresServer()
        stack.callback(postgres.remove)
        return postgres.start(*config)
    server = (MariaDbServer if group == "mariadb" else MySqlServer)(config=config)
    stack.callback(server.remove)
    return server.start()


def url_of(server: Server) -> str:
    """Of its only database, or on MariaDB and MySQL of a new one."""
    if isinstance(server, MariaDbServer):
        return server.url(server.create_database())
    return server.url()


def name_in(url: str) -> str:
    """The database of a URL that url_of() made."""
    return url.split("?")[0].rsplit("/", 1)[1]


@contextmanager
def far_url(server: Server | RedisServer, seconds: float, name: str = "") -> Iterator[str]:
    """The server's URL behind a link; of MariaDB and MySQL, that of the database `name`."""
    if isinstance(server, PostgresServer):
        with link(server.folder / ".s.PGSQL.5432", seconds) as port:
            yield f"postgresql://{server.superuser}@127.0.0.1:{port}/postgres"
        return
    with link(server.socket, seconds) as port:
        if isinstance(server, RedisServer):
            yield f"redis://127.0.0.1:{port}"
        else:
            yield f"{server.scheme}://root@127.0.0.1:{port}/{name or server.create_database()}"


def pass_on(server: Path, seconds: float, parent: Connection) -> None:
    with FaultProxy(server) as proxy:
        proxy.delay(seconds)
        parent.send(proxy.port)
        parent.recv()


@contextmanager
def link(server: Path, seconds: float) -> Iterator[int]:
    """A loopback port from which each piece of data takes so long, either way, to the socket."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=pass_on, args=(server, seconds, theirs))
    process.start()
    theirs.close()  # So that recv() ends if the process does.
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()
