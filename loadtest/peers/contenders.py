"""Blocking contenders: threads that add one by one, and batches.

A contender is opened once for all rounds. Thread i of a load calls `adder(i)` for the function that
it adds with. `add_batch` adds 1 to each key of a batch. Outside the measured time `key()` turns a
name into the contender's argument: the name itself for hotcount, whose counters prepend their
prefix at each call, and the whole key for the peers.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import hotcount

from loadtest.peers import keys
from loadtest.peers.rounds import KEY_PREFIX, RATE, TIMEOUT_S, Measured

Add = Callable[[Any], object]

# Calls of each thread before the clock starts: they open connections and warm caches.
WARM = 5


class Contender(Protocol):
    def key(self, name: str) -> str: ...
    def adder(self, thread: int) -> Add: ...
    def add_batch(self, names: list[str]) -> object: ...
    def close(self) -> None: ...


class Hotcount:
    """One counter on one store, shared by all threads."""

    def __init__(self, port: int) -> None:
        self._store = hotcount.Redis(f"redis://127.0.0.1:{port}", timeout=TIMEOUT_S)
        self._counter = hotcount.Counter(self._store)

    def key(self, name: str) -> str:
        return name

    def adder(self, thread: int) -> Add:
        return self._counter.add

    def add_batch(self, names: list[str]) -> object:
        """Returns the column that add_many returns, without making a list of it."""
        return self._counter.add_many(names)

    def close(self) -> None:
        self._store.close()


class Peer:
    """A peer takes whole keys. Peers with batches override add_batch()."""

    def key(self, name: str) -> str:
        return KEY_PREFIX + name

    def add_batch(self, names: list[str]) -> object:
        raise NotImplementedError


class RedisPy(Peer):
    """redis-py as in its documentation: one shared client, with a large enough pool.

    It parses with hiredis, its default if hiredis is installed.
    """

    def __init__(self, port: int) -> None:
        import redis

        self._client = redis.Redis(
            host="127.0.0.1", port=port, max_connections=64, socket_timeout=TIMEOUT_S
        )

    def adder(self, thread: int) -> Add:
        return self._client.incr  # type: ignore[no-any-return]

    def add_batch(self, names: list[str]) -> object:
        """Returns a value for each add, as hotcount does; merging equal keys would not."""
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            pipeline.incr(name)
        return pipeline.execute()

    def close(self) -> None:
        self._client.close()


class RedisPyOwn(Peer):
    """redis-py where it is fastest: a client with one connection for each thread.

    No call takes a connection from a pool: about 1.2 times the rate of the shared client with one
    thread, 1.4 times with 32. Fewer connections than threads were slower than either.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._clients: dict[int, Any] = {}

    def adder(self, thread: int) -> Add:
        import redis

        if thread not in self._clients:
            self._clients[thread] = redis.Redis(
                host="127.0.0.1",
                port=self._port,
                single_connection_client=True,
                socket_timeout=TIMEOUT_S,
            )
        return self._clients[thread].incr  # type: ignore[no-any-return]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def glide_client(package: Any, port: int, kind: str) -> Any:
    """A client of valkey-glide's package, sync or not; its kind is "Glide" or "GlideCluster"."""
    settings = getattr(package, f"{kind}ClientConfiguration")(
        [package.NodeAddress("127.0.0.1", port)], request_timeout=int(TIMEOUT_S * 1_000)
    )
    return getattr(package, f"{kind}Client").create(settings)


class GlideSync(Peer):
    """valkey-glide-sync: one client, shared, which multiplexes.

    4 clients, or one for each thread, were no faster here. Its default time limit of 250 ms would
    make a slow machine's adds unknown.
    """

    def __init__(self, port: int, kind: str = "Glide") -> None:
        import glide_sync

        self._client = glide_client(glide_sync, port, kind)

    def adder(self, thread: int) -> Add:
        return self._client.incr  # type: ignore[no-any-return]

    def close(self) -> None:
        self._client.close()


def drive(
    adder: Callable[[int], Add],
    arguments: Callable[[int], Sequence[Any]],
    threads: int,
    seconds: float,
    size: int = 1,
) -> Measured:
    """Calls from all threads for `seconds`, each with its arguments over and over again.

    The measured time runs from the moment when the last thread is warm to the end of the last call.
    Every call counts for `size` adds.
    """
    clock = time.perf_counter
    span = [0.0, 0.0]

    def start() -> None:
        span[0] = clock()
        span[1] = span[0] + seconds

    gate = threading.Barrier(threads, action=start)
    calls = [0] * threads
    ended = [0.0] * threads
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            add, turn = adder(index), arguments(index)
            for argument in itertools.islice(itertools.cycle(turn), WARM):
                add(argument)
            gate.wait()
            ends_at = span[1]
            count = 0
            for argument in itertools.cycle(turn):
                add(argument)
                count += 1
                if clock() >= ends_at:
                    break
            calls[index], ended[index] = count, clock()
        except BaseException as failure:
            failures.append(failure)
            gate.abort()

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for failure in failures:
        # A BrokenBarrierError says only that another thread failed.
        if not isinstance(failure, threading.BrokenBarrierError):
            raise failure
    rate = sum(calls) * size / (max(ended) - span[0])
    return Measured((sum(calls) + threads * WARM) * size, {RATE: rate})


def singly(
    contender: Contender, threads: int, key_count: int, seconds: float, seed: int
) -> Measured:
    """Adds of 1, one by one, to keys drawn uniformly, from `threads` threads."""

    def draw(index: int) -> list[str]:
        names = keys.uniform(key_count, 2_000, seed * 1_000 + index)
        return [contender.key(name) for name in names]

    return drive(contender.adder, draw, threads, seconds)


def batches(
    contender: Contender, made: Callable[[int], list[list[str]]], seconds: float, seed: int
) -> Measured:
    """Batches of adds of 1, from one thread."""
    drawn = [[contender.key(name) for name in batch] for batch in made(seed)]
    return drive(
        lambda _index: contender.add_batch, lambda _index: drawn, 1, seconds, size=len(drawn[0])
    )
