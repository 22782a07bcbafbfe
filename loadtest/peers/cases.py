"""The comparisons: the cases of each group, and their contenders.

In sync, asyncio, batch and cpp each call adds 1 and returns the value after this very add; in
limits and limiters it is a hit, in sets an upsert. Every caller waits for its answer before the
next call. Notes on the groups:

sync, asyncio, cpp: hotcount sends concurrent adds to one key as one command and computes each
caller's value; its figures include that. With 1 key it merges all concurrent adds, with 1,000 keys
few of them. The peers send every add. redis-py takes part twice: as its documentation shows it, and
in its fastest setting.

asyncio, beside a retry queue: the cost of sending adds through the queue's thread.

batch: hotcount's add_many returns a column, redis-py's pipeline a list. Where keys repeat, hotcount
merges them and still returns each add's value. redis-benchmark shows the server's rate with a
client that does next to nothing; it draws its own keys uniformly, from as many (native.py).

cpp: rueidis of Go has as many goroutines as hotcount has threads or adds in flight. Adds in flight
are compared with goroutines that block, because a Go program has many calls in flight that way.
rueidis takes part twice: with its defaults, and with a delay before it sends. The delay makes it
two to four times as fast with many callers, and slower with two or four.

limits: throttled-py has a pool of redis.asyncio, a connection a task. hotcount sends the hits of
one turn of the loop in one batch; its figures include that. A task that sleeps 1 ms at a time
measures the worst gap: the longest time between two of its turns while Redis is paused for 0.3 s.

limiters: blocking hits beside limits and throttled-py; hits in memory from C++ beside Rust's
governor; over Redis, 64 hits in flight from one thread, beside throttlecrab-server under
redis-benchmark with as many connections; and the server's time for a key of a batch beside its time
for a single hit.

sets: single upserts beside redis-py with the same script; how long another client waits beside
batches of each size (sets.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from loadtest.peers import (
    asyncio_contenders,
    asyncio_limits,
    contenders,
    keys,
    limiters,
    native,
    sets,
)
from loadtest.peers.rounds import KEY_PREFIX, OURS, Case, Load, Run
from tests.support.servers import RedisServer

GROUPS = ("sync", "asyncio", "limits", "limiters", "batch", "sets", "cpp")

# Packages that a group imports. redis-py parses with hiredis if it is installed.
PACKAGES = {
    "sync": ("redis", "hiredis", "glide_sync"),
    "asyncio": ("redis", "hiredis", "glide"),
    "limits": ("redis", "hiredis", "throttled", "limits"),
    "limiters": ("redis", "hiredis", "throttled", "limits"),
    "batch": ("redis", "hiredis"),
    "sets": ("redis", "hiredis"),
    "cpp": (),
}

KEYS = 1_000
THREADS = 64
IN_FLIGHT = (64, 256, 1_024)

REDIS_PY = "redis-py"
REDIS_PY_OWN = "redis-py, a client a thread"
GLIDE_SYNC = "glide-sync"
QUEUED = "hotcount with a RetryQueue"
REDIS_ASYNCIO = "redis.asyncio"
GLIDE = "glide"
THROTTLED = "throttled-py, gcra"
LIMITS = "limits, fixed window"
GOVERNOR = "governor"
THROTTLECRAB = "throttlecrab-server, redis-benchmark -c 64"
ALONE = "a script for each key"
PIPELINE = "redis-py pipeline"
SAME_LUA = "redis-py, the same Lua"
BENCHMARK = "redis-benchmark -c 50 -P 100"

# The load of each contender.
Runs = Mapping[str, Run]
T = TypeVar("T")


class Setup:
    """Makes the cases on one server; `left_out` says which programs were missing.

    `stack` closes the contenders that it opens.
    """

    def __init__(self, server: RedisServer, build: Path, stack: ExitStack) -> None:
        self._port = server.port
        self._build = build
        self._stack = stack
        self.left_out: list[str] = []

    def cases(self, groups: list[str]) -> list[Case]:
        made = {
            "sync": self._sync,
            "asyncio": self._asyncio,
            "limits": self._limits,
            "limiters": self._limiters,
            "batch": self._batch,
            "sets": self._sets,
            "cpp": self._cpp,
        }
        # In the order of GROUPS, whatever the order of `groups`.
        return [case for group in GROUPS if group in groups for case in made[group]()]

    def _open(self, contender: Callable[[int], T]) -> T:
        opened = contender(self._port)
        self._stack.callback(opened.close)  # type: ignore[attr-defined]
        return opened

    def _available(self, find: Callable[[], T]) -> T | None:
        try:
            return find()
        except native.LeftOut as reason:
            if str(reason) not in self.left_out:
                self.left_out.append(str(reason))
            return None

    def _benchmark(self, name: str, connections: int, pipeline: int) -> dict[str, Run]:
        program = self._available(native.find_benchmark)
        if program is None:
            return {}
        return {name: native.RedisBenchmark(program, self._port, connections, pipeline).run}

    def _sync(self) -> list[Case]:
        opened: dict[str, contenders.Contender] = {
            OURS: self._open(contenders.Hotcount),
            REDIS_PY: self._open(contenders.RedisPy),
            REDIS_PY_OWN: self._open(contenders.RedisPyOwn),
            GLIDE_SYNC: self._open(contenders.GlideSync),
        }
        return [
            case(
                f"{plural(threads, 'thread')}, {plural(key_count, 'key')}",
                "sync",
                hits_of(opened, threads, key_count),
            )
            for threads in (1, 32)
            for key_count in (1, KEYS)
        ]

    def _asyncio(self) -> list[Case]:
        # For each contender the function that opens it, and the prefix of its keys.
        peers: dict[str, tuple[asyncio_contenders.Open, str]] = {
            OURS: (asyncio_contenders.hotcount_aio, ""),
            REDIS_ASYNCIO: (asyncio_contenders.redis_asyncio, KEY_PREFIX),
            GLIDE: (asyncio_contenders.glide, KEY_PREFIX),
        }
        # Not audited: the sum would include the queue's own keys in Redis.
        with_queue = {OURS: peers[OURS], QUEUED: (asyncio_contenders.hotcount_queued, "")}

        def runs(opened: dict[str, tuple[asyncio_contenders.Open, str]], tasks: int) -> Runs:
            return {
                name: partial(asyncio_contenders.singly, contender, prefix, self._port, tasks, KEYS)
                for name, (contender, prefix) in opened.items()
            }

        return [
            case(plural(tasks, "task"), "asyncio", runs(peers, tasks)) for tasks in (1, 64, 256)
        ] + [
            case(
                f"{plural(tasks, 'task')}, beside a retry queue",
                "asyncio",
                runs(with_queue, tasks),
                audited=False,
            )
            for tasks in (1, 64)
        ]

    def _limits(self) -> list[Case]:
        hits: dict[str, asyncio_limits.Open] = {
            OURS: asyncio_limits.hotcount_hits,
            THROTTLED: asyncio_limits.throttled_hits,
            LIMITS: asyncio_limits.limits_hits,
        }
        singly, paused = asyncio_limits.singly, asyncio_limits.paused
        return [
            case(
                f"{what}, {plural(tasks, 'task')}",
                "limits",
                {name: partial(run, opened, self._port, tasks) for name, opened in hits.items()},
                audited=False,
            )
            for what, tasks, run in (
                ("Limiter.hit", 1, singly),
                ("Limiter.hit", 64, singly),
                ("Limiter.hit", 256, singly),
                ("hit while Redis is paused", 256, paused),
            )
        ]

    def _limiters(self) -> list[Case]:
        kinds: dict[str, Callable[[int], contenders.Contender]] = {
            OURS: limiters.Hotcount,
            LIMITS: limiters.Limits,
            THROTTLED: limiters.Throttled,
        }
        over_redis = {name: self._open(kind) for name, kind in kinds.items()}
        in_memory = {name: kind(0) for name, kind in kinds.items()}
        keys_of_scripts: Runs = {
            name: partial(limiters.server_time, batch, self._port)
            for name, batch in ((OURS, 250), (ALONE, 1))
        }
        made: dict[str, Runs] = {
            "1 thread": hits_of(over_redis, 1),
            "32 threads": hits_of(over_redis, 32),
            "memory, 1 thread": hits_of(in_memory, 1),
            "hit_many of 250": keys_of_scripts,
            **self._limiters_of_rust(),
        }
        return [case(name, "limiters", runs, audited=False) for name, runs in made.items()]

    def _limiters_of_rust(self) -> dict[str, Runs]:
        ours = self._available(lambda: native.cpp_program(self._build, "limits from C++ and Rust"))
        if ours is None:
            return {}
        made: dict[str, Runs] = {}
        governor = self._available(native.rust_program)
        if governor is not None:
            made["C++, memory, 1 thread"] = {
                OURS: partial(native.singly, ours, "memory-hits", 1, KEYS, 0),
                GOVERNOR: partial(native.singly, governor, "memory", 1, KEYS, 0),
            }
        crab = self._available(native.throttlecrab)
        benchmark = self._available(native.find_benchmark)
        if crab is not None and benchmark is not None:
            self._stack.callback(crab.close)
            command = f"THROTTLE k:__rand_int__ {limiters.PER_MINUTE} {limiters.PER_MINUTE} 60"
            asks = native.RedisBenchmark(benchmark, crab.port, 64, 1, command)
            made["C++, Redis, 64 in flight"] = {
                OURS: partial(native.singly, ours, "redis-hits", 64, KEYS, self._port),
                THROTTLECRAB: asks.run,
            }
        return made

    def _batch(self) -> list[Case]:
        ours, theirs = self._open(contenders.Hotcount), self._open(contenders.RedisPy)

        def runs(made: Callable[[int], list[list[str]]]) -> Runs:
            return {
                OURS: partial(contenders.batches, ours, made),
                PIPELINE: partial(contenders.batches, theirs, made),
            }

        distinct = {**runs(keys.distinct_batches), **self._benchmark(BENCHMARK, 50, 100)}
        return [
            case(f"each of {KEYS:,} keys once", "batch", distinct),
            case("Zipf 0.99 over 10,000 keys", "batch", runs(keys.zipf_batches)),
        ]

    def _sets(self) -> list[Case]:
        port = self._port

        def waits(method: str, batch: int) -> Run:
            return partial(sets.beside, sets.writes_of(method, batch), port)

        made: dict[str, Runs] = {
            **{
                f"upsert, {plural(threads, 'thread')}": {
                    OURS: partial(sets.ours_singly, port, threads),
                    SAME_LUA: partial(sets.redis_py_singly, port, threads),
                }
                for threads in (1, 32)
            },
            "another client beside upsert_many": {
                "no writes": partial(sets.beside, None, port),
                **{f"script, batch={n}": waits("script", n) for n in (32, 128, 250)},
                "ttl_gate, batch=250": waits("ttl_gate", 250),
            },
        }
        return [case(name, "sets", runs, audited=False) for name, runs in made.items()]

    def _cpp(self) -> list[Case]:
        cpp = self._available(lambda: native.cpp_program(self._build, "hotcount from C++, rueidis"))
        if cpp is None:
            return []
        go = self._available(lambda: native.go_program(native.find_go()))

        def runs(mode: str, width: int, count: int) -> Runs:
            programs: list[tuple[str, Path, str]] = [(OURS, cpp, mode)]
            if go is not None:
                programs.append((f"rueidis, {width:,}", go, "rueidis"))
                programs.append((f"rueidis with a delay, {width:,}", go, "rueidis-delayed"))
            return {
                name: partial(native.singly, program, how, width, count, self._port)
                for name, program, how in programs
            }

        blocking = [
            case(
                f"{THREADS} blocking threads, {plural(count, 'key')}",
                "cpp",
                runs("blocking", THREADS, count),
            )
            for count in (KEYS, 1)
        ]
        return blocking + [
            case(
                f"{width:,} in flight from one thread, {plural(KEYS, 'key')}",
                "cpp",
                runs("completions", width, KEYS),
            )
            for width in IN_FLIGHT
        ]


def case(name: str, group: str, runs: Runs, audited: bool = True) -> Case:
    return Case(name, group, [Load(*one) for one in runs.items()], audited)


def hits_of(opened: dict[str, contenders.Contender], threads: int, key_count: int = KEYS) -> Runs:
    """Adds, or hits, one by one from `threads` threads."""
    return {
        name: partial(contenders.singly, contender, threads, key_count)
        for name, contender in opened.items()
    }


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s'[: count != 1]}"
