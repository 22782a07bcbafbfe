"""What is compared: the cases of each group, who takes part, and what is to be reached.

Every call is an add of 1 that returns the value after this very add, and every caller waits for
its own before it makes the next. What else a comparison includes:

sync, asyncio, cpp: hotcount sends concurrent adds to one key as one command and works out each
caller's value. That is part of what it is and of its figures: all of them with 1 key, a few with
1,000. The peers send every add. redis-py takes part twice: as its documentation has it, and in the
setting in which it is fastest; the target is for either.

asyncio, beside a retry queue: what an add costs that goes through the queue's thread.

batch: hotcount's add_many returns a column, redis-py's pipeline a list. Where keys repeat, hotcount
merges them and still returns each add's value. redis-benchmark shows what the server does if a
client does next to nothing, with keys of its own, drawn uniformly from as many (native.py).

cpp: Go's clients have as many goroutines as hotcount has threads or adds in flight. Adds in flight
are compared with goroutines that block, because that is how a Go program has many under way.
rueidis takes part twice: with its defaults, which the target is for, and with a delay before it
sends, which makes it two to four times as fast with many callers and slower with two or four.

limits: throttled-py has a pool of redis.asyncio, a connection a task. hotcount sends what the tasks
of one turn of the loop ask in one batch; that is part of what it is and of its figures. While Redis
is paused for 0.3 s, the worst gap is the longest time between two beats of a task that sleeps 1 ms.

limiters: blocking hits beside limits and throttled-py; hits in memory from C++ beside Rust's
governor; over Redis, 64 under way from one thread, beside throttlecrab-server, which
redis-benchmark asks over as many connections; and the server's time for a key in a batch beside
that of a hit alone.

sets: single upserts beside redis-py with the same script; batches beside the server alone; how long
another client waits beside batches of each size (sets.py).

idle: redis-py with one connection and no pool, where it is fastest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from loadtest.peers.rounds import KEY_PREFIX, OURS, P99, RATE, SERVER_US, Case, Load, Measured
from tests.support.servers import RedisServer

GROUPS = ("sync", "asyncio", "limits", "limiters", "batch", "sets", "cpp", "idle")

# What must be importable for a group. redis-py parses with hiredis if it finds it.
PACKAGES = {
    "sync": ("redis", "hiredis", "glide_sync"),
    "asyncio": ("redis", "hiredis", "coredis", "glide", "uvloop"),
    "limits": ("redis", "hiredis", "throttled", "limits"),
    "limiters": ("redis", "hiredis", "throttled", "limits"),
    "batch": ("redis", "hiredis"),
    "sets": ("redis", "hiredis"),
    "cpp": (),
    "idle": ("redis", "hiredis"),
}

KEYS = 1_000
THREADS = 64
IN_FLIGHT = (64, 256, 1_024)
# An idle caller makes few calls in a second, and a 99th percentile needs many.
IDLE_TIMES = 4

REDIS_PY = "redis-py"
REDIS_PY_OWN = "redis-py, a client a thread"
GLIDE_SYNC = "glide-sync"
QUEUED = "hotcount with a RetryQueue"
REDIS_ASYNCIO = "redis.asyncio"
COREDIS = "coredis"
GLIDE = "glide"
THROTTLED = "throttled-py, gcra"
LIMITS = "limits, fixed window"
GOVERNOR = "governor"
THROTTLECRAB = "throttlecrab-server, redis-benchmark -c 64"
ALONE = "a script for each key"
PIPELINE = "redis-py pipeline"
SAME_LUA = "redis-py, the same Lua"
SERVER_ALONE = "the server alone"
BENCHMARK_ONE = "redis-benchmark -c 1"
BENCHMARK = "redis-benchmark -c 50 -P 100"

T = TypeVar("T")


class Setup:
    """Makes the cases on one server, and says what had to be left out.

    Contenders that it opens are closed with `stack`.
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
            "idle": self._idle,
        }
        # In their own order, whatever order they were asked for in.
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

    def _benchmark(self, name: str, connections: int, pipeline: int) -> list[Load]:
        program = self._available(native.find_benchmark)
        if program is None:
            return []
        limit = native.RedisBenchmark(program, self._port, connections, pipeline)
        return [Load(name, limit.run)]

    def _sync(self) -> list[Case]:
        opened: dict[str, contenders.Contender] = {
            OURS: self._open(contenders.Hotcount),
            REDIS_PY: self._open(contenders.RedisPy),
            REDIS_PY_OWN: self._open(contenders.RedisPyOwn),
            GLIDE_SYNC: self._open(contenders.GlideSync),
        }
        peers = {REDIS_PY: 8.0, REDIS_PY_OWN: 8.0, GLIDE_SYNC: 4.5}
        made = []
        for threads in (1, 32):
            for key_count in (1, KEYS):
                targets = {}
                if threads == 1:
                    targets = {(peer, RATE): 3.0 for peer in peers}
                elif key_count == KEYS:
                    targets = {(peer, RATE): target for peer, target in peers.items()}
                loads = [
                    Load(name, partial(contenders.singly, contender, threads, key_count))
                    for name, contender in opened.items()
                ]
                if threads == 1 and key_count == KEYS:
                    loads += self._benchmark(BENCHMARK_ONE, 1, 1)
                name = f"{plural(threads, 'thread')}, {plural(key_count, 'key')}"
                made.append(Case(name, "sync", loads, targets))
        return made

    def _asyncio(self) -> list[Case]:
        # What adds, and what stands before its keys.
        opened: dict[str, tuple[asyncio_contenders.Open, str]] = {
            OURS: (asyncio_contenders.hotcount_aio, ""),
            REDIS_ASYNCIO: (asyncio_contenders.redis_asyncio, KEY_PREFIX),
            COREDIS: (asyncio_contenders.coredis, KEY_PREFIX),
            GLIDE: (asyncio_contenders.glide, KEY_PREFIX),
        }
        # uvloop makes some peers faster than others: a ratio is to be reached on the stock loop.
        loops = {"stock loop": asyncio_contenders.stock_loop, "uvloop": asyncio_contenders.uvloop}
        targets = {
            1: {REDIS_ASYNCIO: 3.0, GLIDE: 3.0},
            64: {REDIS_ASYNCIO: 25.0, GLIDE: 10.0},
            256: {REDIS_ASYNCIO: 25.0, COREDIS: 40.0, GLIDE: 10.0},
        }

        def loads(
            contenders: dict[str, tuple[asyncio_contenders.Open, str]],
            new_loop: Callable[[], asyncio.AbstractEventLoop],
            tasks: int,
        ) -> list[Load]:
            singly, port = asyncio_contenders.singly, self._port
            return [
                Load(name, partial(singly, contender, new_loop, prefix, port, tasks, KEYS))
                for name, (contender, prefix) in contenders.items()
            ]

        # Not audited: the queue's numbers stand beside the counters.
        with_queue = {OURS: opened[OURS], QUEUED: (asyncio_contenders.hotcount_queued, "")}
        stock = asyncio_contenders.stock_loop
        return [
            Case(
                f"{plural(tasks, 'task')}, {loop}",
                "asyncio",
                loads(opened, new_loop, tasks),
                {(peer, RATE): target for peer, target in targets[tasks].items()}
                if new_loop is stock
                else {},
            )
            for loop, new_loop in loops.items()
            for tasks in (1, 64, 256)
        ] + [
            Case(
                f"{plural(tasks, 'task')}, beside a retry queue",
                "asyncio",
                loads(with_queue, stock, tasks),
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
        upserts: dict[str, asyncio_limits.Open] = {
            OURS: asyncio_limits.hotcount_upserts,
            REDIS_ASYNCIO: asyncio_limits.redis_upserts,
        }

        def case(
            what: str,
            contenders: dict[str, asyncio_limits.Open],
            tasks: int,
            run: Callable[..., Measured],
            targets: dict[tuple[str, str], float],
        ) -> Case:
            loads = [
                Load(name, partial(run, opened, self._port, tasks))
                for name, opened in contenders.items()
            ]
            name = f"{what}, {plural(tasks, 'task')}"
            return Case(name, "limits", loads, targets, audited=False)

        singly, paused = asyncio_limits.singly, asyncio_limits.paused
        return [
            case("Limiter.hit", hits, 1, singly, {}),
            case(
                "Limiter.hit",
                hits,
                64,
                singly,
                {(peer, RATE): 20.0 for peer in (THROTTLED, LIMITS)},
            ),
            case("Limiter.hit", hits, 256, singly, {}),
            case("LiveSets.upsert", upserts, 256, singly, {}),
            case("hit while Redis is paused", hits, 256, paused, {}),
            case("upsert while Redis is paused", upserts, 256, paused, {}),
        ]

    def _limiters(self) -> list[Case]:
        kinds: dict[str, Callable[[int], contenders.Contender]] = {
            OURS: limiters.Hotcount,
            LIMITS: limiters.Limits,
            THROTTLED: limiters.Throttled,
        }
        over_redis = {name: self._open(kind) for name, kind in kinds.items()}
        in_memory = {name: kind(0) for name, kind in kinds.items()}

        def case(name: str, loads: list[Load], targets: dict[tuple[str, str], float]) -> Case:
            return Case(name, "limiters", loads, targets, audited=False)

        def hits(opened: dict[str, contenders.Contender], threads: int) -> list[Load]:
            return [
                Load(name, partial(contenders.singly, contender, threads, KEYS))
                for name, contender in opened.items()
            ]

        def server_time(name: str, batch: int) -> Load:
            return Load(name, partial(limiters.server_time, batch, self._port))

        peers = (LIMITS, THROTTLED)
        return [
            case("1 thread", hits(over_redis, 1), {(peer, RATE): 2.5 for peer in peers}),
            case("32 threads", hits(over_redis, 32), {(peer, RATE): 8.0 for peer in peers}),
            case("memory, 1 thread", hits(in_memory, 1), {(THROTTLED, RATE): 8.0}),
            case(
                "hit_many of 250",
                [server_time(OURS, 250), server_time(ALONE, 1)],
                {(ALONE, SERVER_US): 0.5},
            ),
            *self._limiters_of_rust(case),
        ]

    def _limiters_of_rust(self, case: Callable[..., Case]) -> list[Case]:
        ours = self._available(lambda: native.limits_program(self._build))
        if ours is None:
            return []
        made = []
        governor = self._available(native.rust_program)
        if governor is not None:
            loads = [
                Load(name, partial(native.singly, program, "memory", 1, KEYS, 0))
                for name, program in ((OURS, ours), (GOVERNOR, governor))
            ]
            # 1.2 times its time.
            made.append(case("C++, memory, 1 thread", loads, {(GOVERNOR, RATE): 1 / 1.2}))
        crab = self._available(native.throttlecrab)
        benchmark = self._available(native.find_benchmark)
        if crab is not None and benchmark is not None:
            self._stack.callback(crab.close)
            command = f"THROTTLE k:__rand_int__ {limiters.A_MINUTE} {limiters.A_MINUTE} 60"
            asks = native.RedisBenchmark(benchmark, crab.port, 64, 1, command)
            loads = [
                Load(OURS, partial(native.singly, ours, "redis", 64, KEYS, self._port)),
                Load(THROTTLECRAB, asks.run),
            ]
            made.append(case("C++, Redis, 64 in flight", loads, {(THROTTLECRAB, RATE): 1.0}))
        return made

    def _batch(self) -> list[Case]:
        ours, theirs = self._open(contenders.Hotcount), self._open(contenders.RedisPy)

        def case(
            name: str,
            made: Callable[[int], list[list[str]]],
            targets: dict[str, float],
            more: list[Load],
        ) -> Case:
            loads = [
                Load(OURS, partial(contenders.batches, ours, made)),
                Load(PIPELINE, partial(contenders.batches, theirs, made)),
                *more,
            ]
            return Case(name, "batch", loads, {(peer, RATE): at for peer, at in targets.items()})

        return [
            case(
                f"each of {KEYS:,} keys once",
                keys.distinct_batches,
                {PIPELINE: 8.0, BENCHMARK: 0.85},
                self._benchmark(BENCHMARK, 50, 100),
            ),
            case("one key", keys.one_key_batches, {}, []),
            case("Zipf 0.99 over 10,000 keys", keys.zipf_batches, {PIPELINE: 20.0}, []),
        ]

    def _sets(self) -> list[Case]:
        def case(name: str, loads: list[Load], targets: dict[tuple[str, str], float]) -> Case:
            return Case(name, "sets", loads, targets, audited=False)

        def singly(threads: int, targets: dict[tuple[str, str], float]) -> Case:
            loads = [
                Load(OURS, partial(sets.ours_singly, self._port, threads)),
                Load(SAME_LUA, partial(sets.redis_py_singly, self._port, threads)),
            ]
            return case(f"upsert, {plural(threads, 'thread')}", loads, targets)

        def batches(threads: int, targets: dict[tuple[str, str], float]) -> Case:
            loads = [
                Load(OURS, partial(sets.ours_batched, self._port, threads, 250)),
                Load(SERVER_ALONE, partial(sets.server_alone, self._port, 250)),
            ]
            return case(f"upsert_many of 250, {plural(threads, 'thread')}", loads, targets)

        def waits(name: str, method: str, batch: int) -> Load:
            return Load(name, partial(sets.beside, sets.writes_of(method, batch), self._port))

        bystander = [
            Load("nobody writes", partial(sets.beside, None, self._port)),
            *(waits(f"script, batch={n}", "script", n) for n in (32, 64, 128, 250)),
            waits("ttl_gate, batch=250", "ttl_gate", 250),
        ]
        return [
            singly(1, {}),
            singly(32, {(SAME_LUA, RATE): 8.0}),
            batches(1, {}),
            batches(2, {(SERVER_ALONE, RATE): 0.8}),
            case("another client beside upsert_many", bystander, {}),
        ]

    def _cpp(self) -> list[Case]:
        cpp = self._available(lambda: native.cpp_program(self._build))
        if cpp is None:
            return []
        go = self._available(lambda: native.go_program(native.find_go()))

        def load(name: str, program: Path | None, mode: str, width: int, count: int) -> list[Load]:
            if program is None:
                return []

            def run(seconds: float, seed: int, program: Path = program) -> Measured:
                return native.singly(program, mode, width, count, self._port, seconds, seed)

            return [Load(name, run)]

        def rueidis(width: int, count: int) -> list[Load]:
            return [
                *load(f"rueidis, {width:,}", go, "rueidis", width, count),
                *load(f"rueidis with a delay, {width:,}", go, "rueidis-delayed", width, count),
            ]

        made = [
            Case(
                f"{THREADS} blocking threads, {plural(count, 'key')}",
                "cpp",
                [
                    *load(OURS, cpp, "blocking", THREADS, count),
                    *rueidis(THREADS, count),
                    *load(f"go-redis, {THREADS}", go, "go-redis", THREADS, count),
                ],
                {(f"rueidis, {THREADS}", RATE): 1.4} if count == KEYS else {},
            )
            for count in (KEYS, 1)
        ]
        for width in IN_FLIGHT:
            targets = {(f"rueidis, {width:,}", RATE): 1.4} if width > 64 else {}
            loads = [*load(OURS, cpp, "completions", width, KEYS), *rueidis(width, KEYS)]
            if width == 256:
                loads += load("go-redis, 64", go, "go-redis", 64, KEYS)
                targets[("go-redis, 64", RATE)] = 5.0
            name = f"{width:,} in flight from one thread, {plural(KEYS, 'key')}"
            made.append(Case(name, "cpp", loads, targets))
        return made

    def _idle(self) -> list[Case]:
        opened: dict[str, contenders.Contender] = {
            OURS: self._open(contenders.Hotcount),
            REDIS_PY: self._open(contenders.RedisPyOwn),
        }

        def load(contender: contenders.Contender) -> Callable[[float, int], Measured]:
            def run(seconds: float, seed: int) -> Measured:
                return contenders.idle(contender, KEYS, seconds * IDLE_TIMES, seed)

            return run

        loads = [Load(name, load(contender)) for name, contender in opened.items()]
        name = f"a caller that pauses for 1 ms, {plural(KEYS, 'key')}"
        return [Case(name, "idle", loads, {(REDIS_PY, P99): 1.0})]


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s'[: count != 1]}"
