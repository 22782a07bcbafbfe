"""Counters on a cluster: hotcount beside redis-py's and valkey-glide's cluster clients.

    make peers-cluster
    make peers-cluster PEERS_ARGS="--rounds 9 --json cluster.json"

Three primaries without replicas, a cluster of one node and a server by itself, all on loopback,
share the machine with the clients. hotcount takes part as its own peer on the last two: what a
cluster costs. Every contender adds 1 to keys of the same names; what it was told that it added must
be there afterwards. Only the ratios within one run say something.

Exit code: 0, or 1 if an add was lost, doubled or failed, 2 on bad usage or if something is missing.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import hotcount
import redis

from loadtest.peers import asyncio_contenders, contenders, keys, options
from loadtest.peers.report import summary, text_table
from loadtest.peers.rounds import (
    KEY_PREFIX,
    OURS,
    TIMEOUT_S,
    Case,
    Load,
    LostAdds,
    Measured,
    Run,
    run_rounds,
)
from tests.support.redis_cluster import RedisCluster
from tests.support.servers import RedisServer, free_port

GROUPS = ("cluster",)
KEYS = 1_000
DISTRIBUTIONS = {"redis": "redis", "glide_sync": "valkey-glide-sync", "glide": "valkey-glide"}

Adding = AbstractAsyncContextManager[asyncio_contenders.AsyncAdd]


@asynccontextmanager
async def redis_aio(port: int) -> AsyncIterator[asyncio_contenders.AsyncAdd]:
    from redis.asyncio.cluster import RedisCluster as Client

    client = Client(host="127.0.0.1", port=port, max_connections=256, socket_timeout=TIMEOUT_S)
    await client.initialize()
    try:
        yield client.incr
    finally:
        await client.aclose()


class RedisPy(contenders.RedisPy):
    def __init__(self, port: int) -> None:
        from redis.cluster import RedisCluster as Client

        self._client = Client(
            host="127.0.0.1", port=port, max_connections=64, socket_timeout=TIMEOUT_S
        )


class Hotcount(contenders.Hotcount):
    def __init__(self, url: str) -> None:
        self._store = hotcount.Redis(url, timeout=TIMEOUT_S)
        self._counter = hotcount.Counter(self._store)


def by_tasks(opened: Callable[[], Adding], prefix: str, tasks: int) -> Run:
    def run(seconds: float, seed: int) -> Measured:
        names = [prefix + name for name in keys.uniform(KEYS, 10_007, seed)]

        async def load() -> Measured:
            async with opened() as add:
                return await asyncio_contenders.drive(add, names, tasks, seconds)

        return asyncio.run(load())

    return run


def by_threads(opened: Callable[[], Any], threads: int) -> Run:
    def run(seconds: float, seed: int) -> Measured:
        contender = opened()
        try:
            return contenders.singly(contender, threads, KEYS, seconds, seed)
        finally:
            contender.close()

    return run


def cases(cluster: RedisCluster, one: RedisCluster, plain: RedisServer) -> list[Case]:
    port, alone = cluster.nodes[0].port, f"redis://127.0.0.1:{plain.port}"
    ours = partial(asyncio_contenders.hotcount_at, cluster.url)
    glide = partial(asyncio_contenders.glide, port, 0, "GlideCluster")
    glide_sync = partial(contenders.GlideSync, port, "GlideCluster")
    made = []
    for tasks in (64, 256):
        loads = [
            Load(OURS, by_tasks(ours, "", tasks)),
            Load("redis.asyncio", by_tasks(partial(redis_aio, port), KEY_PREFIX, tasks)),
            Load("glide", by_tasks(glide, KEY_PREFIX, tasks)),
            Load(
                "hotcount, one server",
                by_tasks(partial(asyncio_contenders.hotcount_at, alone), "", tasks),
            ),
        ]
        made.append(Case(f"three primaries, {tasks} tasks", "cluster", loads))
    made.append(
        Case(
            "three primaries, 64 threads",
            "cluster",
            [
                Load(OURS, by_threads(partial(Hotcount, cluster.url), 64)),
                Load("redis-py", by_threads(partial(RedisPy, port), 64)),
                Load("glide-sync", by_threads(glide_sync, 64)),
            ],
        )
    )
    runs: dict[str, Callable[[str], Run]] = {
        "64 tasks": lambda url: by_tasks(partial(asyncio_contenders.hotcount_at, url), "", 64),
        "64 threads": lambda url: by_threads(partial(Hotcount, url), 64),
        "1 thread": lambda url: by_threads(partial(Hotcount, url), 1),
    }
    for name, run in runs.items():
        loads = [Load(OURS, run(one.url)), Load("hotcount, one server", run(alone))]
        made.append(Case(f"a cluster of one node, {name}", "cluster", loads))
    return made


def found(servers: list[RedisServer]) -> int:
    """The sum of all counters, which are taken away."""
    total = 0
    for server in servers:
        with redis.Redis(unix_socket_path=str(server.socket)) as client:
            total += sum(int(client.get(name) or 0) for name in client.keys("*"))
            client.flushall()
    return total


def compare(folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    with ExitStack() as stack:
        paths = [folder / name for name in ("three", "one", "plain")]
        for path in paths:
            path.mkdir()
        cluster = stack.enter_context(RedisCluster(paths[0], replicas=False).started())
        one = stack.enter_context(RedisCluster(paths[1], primaries=1, replicas=False).started())
        plain = stack.enter_context(RedisServer(paths[2], port=free_port()).started())
        servers = [*cluster.nodes, *one.nodes, plain]

        def check(_: Case, measured: Measured) -> None:
            if (there := found(servers)) != measured.added:
                raise LostAdds(f"{measured.added} added, {there} there")

        all_cases = cases(cluster, one, plain)
        run_rounds(all_cases, rounds, seconds, check)
    return {
        "rounds": rounds,
        "seconds": seconds,
        "versions": {name: metadata.version(name) for name in DISTRIBUTIONS.values()},
        "cases": [summary(case) for case in all_cases],
    }


def main(words: list[str] | None = None) -> int:
    parser = options.parser_for(
        "cluster_counters",
        "Counters on a cluster: hotcount beside other clients, in alternating rounds.",
        GROUPS,
        rounds=5,
        seconds=1.0,
        short=["--rounds", "3", "--seconds", "0.5"],
    )
    chosen = options.parse(parser, words)
    for package, distribution in DISTRIBUTIONS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{distribution} is not installed: run `make peers-cluster`", file=sys.stderr)
            return 2

    def run() -> None:
        with tempfile.TemporaryDirectory(prefix="hotcount-peers-") as folder:
            document = compare(Path(folder), chosen.rounds, chosen.seconds)
        print(", ".join(f"{name} {version}" for name, version in document["versions"].items()))
        print(text_table(document["cases"]))
        options.keep(chosen, document)

    return options.exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main())
