"""`hotcount-load` from Python: `run` and `compare` return DataFrames, `driver` adds a strategy.

A program calls `driver` with the functions that vote and count; the load generator starts it.
docs/reference/load-drivers.md has examples, docs/reference/load-protocol.md the protocol.

Example::

    # driver.py
    from hotcount import load

    load.driver(setup=make_tables, cast=vote, read=count, rows=all_votes, counts=all_counts)

    $ hotcount-load run -s 'exec:python driver.py' -r 200 -d 10s
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hotcount import _load_frames as frames
from hotcount._load_calls import compare, run
from hotcount.errors import ConfigError, HotcountError, OutcomeUnknownError
from hotcount.results import Cast

__all__ = ["NotApplied", "compare", "driver", "run"]

_SOCKET = "HOTCOUNT_LOAD_SOCKET"
_RECEIVED_AT_ONCE = 65536
_TRACEBACKS = 10
_MOST_PROCESSES = 64
_PR_SET_PDEATHSIG = 1

Rows = Iterable[tuple[int, int, int]]
Counts = Mapping[int, int] | Iterable[tuple[int, int]]


class NotApplied(HotcountError):
    """Raised by ``cast=`` where the vote certainly was not applied, such as a refused one.

    Any other exception than hotcount's own leaves the outcome unknown: the vote may be there or
    not, and the audit accepts both.
    """


@dataclass(frozen=True)
class _Functions:
    """The arguments of driver()."""

    cast: Callable[[int, int, int], Any]
    read: Callable[[int], Any]
    rows: Callable[[], Any]
    counts: Callable[[], Any]
    setup: Callable[[int], Any] | None
    in_event_loop: bool
    threads: int
    ready: bytes


def driver(
    *,
    cast: Callable[[int, int, int], Any],
    read: Callable[[int], Any],
    rows: Callable[[], Rows] | Callable[[], Awaitable[Rows]],
    counts: Callable[[], Counts] | Callable[[], Awaitable[Counts]],
    setup: Callable[[int], object] | None = None,
    threads: int = 8,
    processes: int = 1,
    place: str = "",
    acknowledged: str = "cast= returned",
    may_lose: str = "nothing",
    durable: bool = True,
    exact: bool = True,
) -> None:
    """Serves `hotcount-load`, which started this program, and returns when the run is over.

    The environment has ``HOTCOUNT_LOAD_DB``, the database that ``--db`` or ``--managed`` names (a
    SQLite file in the run's folder otherwise), and ``HOTCOUNT_LOAD_FOLDER``, that folder. The
    program's output goes to ``driver.log`` there, and so do the first ten tracebacks. Not
    thread-safe: called once, by the main thread.

    Args:
        cast: ``cast(item, user, value)`` sets the vote of a user on an item: 1 votes, 0 takes the
            vote back. A repeat must not count again. It returns None, or whether the vote changed
            (a bool), or a `hotcount.Cast`; the audit checks this answer too. An exception fails the
            call: see `NotApplied`.
        read: ``read(item)`` returns the item's count.
        rows: ``rows()`` returns all votes as (item, user, value): for the audit, straight from the
            database.
        counts: ``counts()`` returns the count of every item, as a mapping or as pairs; an item that
            is not there counts 0.
        setup: ``setup(items)`` makes empty tables, and the items 1 to ``items``. It is not called
            when an earlier run is audited again.
        threads: Calls at once in each process, 1 to 1,024; as tasks where ``cast`` and ``read`` are
            coroutine functions.
        processes: Forked before the first connection, 1 to 64. So open connections in the functions
            or in ``setup``, not before this call.
        place: Where the votes are, in one line for the report.
        acknowledged: The promise of a returned ``cast``, for the report.
        may_lose: For the report. The audit demands everything all the same.
        durable: An acknowledged vote survives the end of this program.
        exact: A read has every vote that was acknowledged before it.

    Raises:
        ConfigError: An argument is bad, or the program was not started by `hotcount-load`.
        TypeError: An argument is no function.
    """
    given = {"cast": cast, "read": read, "rows": rows, "counts": counts, "setup": setup}
    for name, function in given.items():
        if not callable(function) and not (name == "setup" and function is None):
            raise TypeError(f"{name} must be a function, not {type(function).__name__}")
    in_event_loop = inspect.iscoroutinefunction(cast)
    if in_event_loop != inspect.iscoroutinefunction(read):
        raise _bad("read", "cast and read must both be coroutine functions, or neither")
    _check_number("threads", threads, frames.MOST_AT_ONCE)
    _check_number("processes", processes, _MOST_PROCESSES)
    texts = {"acknowledged": acknowledged, "may_lose": may_lose, "place": place}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a str, not {type(text).__name__}")
        if len(text) > 1000:
            raise _bad(name, f"{name} has {len(text)} characters; it takes 1000")
    path = os.environ.get(_SOCKET)
    if not path:
        raise ConfigError(
            f"driver() needs {_SOCKET}: start this program by "
            "hotcount-load run -s 'exec:python FILE'"
        )
    functions = _Functions(
        cast, read, rows, counts, setup, in_event_loop, threads,
        frames.ready(acknowledged, may_lose, place, durable=durable, exact=exact),
    )  # fmt: skip
    if processes == 1:
        _serve(functions, path, connections=1, control=True)
        return
    parent = os.getpid()
    children = []
    for _ in range(processes):
        child = os.fork()
        if child == 0:
            _die_with(parent)
            _serve_and_exit(functions, path, processes + 1)
        children.append(child)
    try:
        _serve(functions, path, connections=processes + 1, control=True, in_flight=0)
    except BaseException:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        raise
    finally:
        for child in children:
            os.waitpid(child, 0)


def _bad(option: str, message: str) -> ConfigError:
    error = ConfigError(message)
    error.option = option
    return error


def _check_number(name: str, number: Any, most: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name} must be an int, not {type(number).__name__}")
    if not 1 <= number <= most:
        error = _bad(name, f"{name} is {number}; it takes 1 to {most}")
        error.value = str(number)
        raise error


def _die_with(parent: int) -> None:
    """A forked process ends with the one that the generator knows: else it would finish its calls
    after that one was killed, while an audit counts already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # It died before the line above.


def _serve_and_exit(functions: _Functions, path: str, connections: int) -> None:
    """The life of a forked process, which must never return into the caller's program."""
    code = 1
    try:
        _serve(functions, path, connections=connections, control=False)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve(
    functions: _Functions,
    path: str,
    *,
    connections: int,
    control: bool,
    in_flight: int | None = None,
) -> None:
    at_once = functions.threads if in_flight is None else in_flight
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(path)
        line.sendall(frames.hello(connections, at_once, control=control))
        if functions.in_event_loop:
            asyncio.run(_Session(functions, line).serve_in_event_loop())
        else:
            _Session(functions, line).serve(at_once)


class _Session:
    """One connection."""

    def __init__(self, functions: _Functions, line: socket.socket) -> None:
        self._functions = functions
        self._line = line
        self._inbox = frames.Inbox()
        self._sending = threading.Lock()
        self._tracebacks = _TRACEBACKS

    def serve(self, threads: int) -> None:
        calls: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()

        def work() -> None:
            while (call := calls.get()) is not None:
                self._send(self._call(*call))

        workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
        for worker in workers:
            worker.start()
        try:
            while data := self._line.recv(_RECEIVED_AT_ONCE):
                for kind, body in self._inbox.feed(data):
                    if kind == frames.BYE:
                        return
                    if kind in (frames.CAST, frames.READ):
                        calls.put((kind, body))
                    else:
                        self._control(kind, body)
        finally:
            for _ in workers:
                calls.put(None)
            for worker in workers:
                worker.join()

    async def serve_in_event_loop(self) -> None:
        loop = asyncio.get_running_loop()
        self._line.setblocking(False)
        sending = asyncio.Lock()
        tasks: set[asyncio.Task[None]] = set()

        async def send(data: bytes) -> None:
            async with sending:
                await loop.sock_sendall(self._line, data)

        async def call(kind: int, body: bytes) -> None:
            await send(await self._call_in_event_loop(kind, body))

        while data := await loop.sock_recv(self._line, _RECEIVED_AT_ONCE):
            for kind, body in self._inbox.feed(data):
                if kind == frames.BYE:
                    return
                if kind in (frames.CAST, frames.READ):
                    task = loop.create_task(call(kind, body))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    continue
                step, *arguments = self._step(kind, body)
                try:
                    told = step(*arguments)
                    told = await told if inspect.isawaitable(told) else told
                    for page in self._result(kind, body, told):
                        await send(page)
                except Exception as failure:
                    await send(self._refusal(failure))

    def _send(self, data: bytes) -> None:
        # When the generator is gone, so is the reason for an answer.
        with self._sending, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._line.sendall(data)

    def _call(self, kind: int, body: bytes) -> bytes:
        try:
            if kind == frames.READ:
                number, item = frames.READ_BODY.unpack(body)
                told = told_read(self._functions.read(item))
            else:
                number, item, user, value = frames.CAST_BODY.unpack(body)
                told = told_cast(self._functions.cast(item, user, value), value)
        except Exception as failure:
            told = self._failed(kind, failure)
        return frames.answer(number, told)

    async def _call_in_event_loop(self, kind: int, body: bytes) -> bytes:
        try:
            if kind == frames.READ:
                number, item = frames.READ_BODY.unpack(body)
                told = told_read(await self._functions.read(item))
            else:
                number, item, user, value = frames.CAST_BODY.unpack(body)
                told = told_cast(await self._functions.cast(item, user, value), value)
        except Exception as failure:
            told = self._failed(kind, failure)
        return frames.answer(number, told)

    def _failed(self, kind: int, failure: Exception) -> frames.Told:
        if self._tracebacks > 0:
            self._tracebacks -= 1
            traceback.print_exception(failure)
        return frames.Told(outcome_of(failure, reads=kind == frames.READ))

    def _step(self, kind: int, body: bytes) -> tuple[Any, ...]:
        """The function of a set-up or an audit, and its arguments."""
        if kind == frames.SET_UP:
            fresh, items, _ = frames.SET_UP_BODY.unpack(body)
            if fresh and self._functions.setup is not None:
                return self._functions.setup, items
            return (lambda: None,)
        return (self._functions.rows if kind == frames.ROWS else self._functions.counts,)

    def _result(self, kind: int, body: bytes, told: Any) -> Iterable[bytes]:
        if kind == frames.SET_UP:
            return [self._functions.ready]
        first, last = frames.RANGE_BODY.unpack(body)
        items = told.items() if isinstance(told, Mapping) else told
        wanted = (tuple(item) for item in items if first <= item[0] <= last)
        return frames.row_pages(wanted) if kind == frames.ROWS else frames.count_pages(wanted)

    def _control(self, kind: int, body: bytes) -> None:
        step, *arguments = self._step(kind, body)
        try:
            told = step(*arguments)
            if inspect.iscoroutine(told):
                told = asyncio.run(told)
            for page in self._result(kind, body, told):
                self._send(page)
        except Exception as failure:
            self._send(self._refusal(failure))

    def _refusal(self, failure: Exception) -> bytes:
        traceback.print_exception(failure)
        return frames.error(f"{type(failure).__name__}: {failure}")


def told_read(count: Any) -> frames.Told:
    return frames.Told(frames.OK, frames.TOLD_COUNT, _whole("read", count))


def told_cast(told: Any, value: int) -> frames.Told:
    if told is None or (isinstance(told, Cast) and told.pending):
        return frames.Told(frames.OK)
    if isinstance(told, Cast):
        changed = told.changed
        value, previous = _whole("cast", told.value), _whole("cast", told.previous)
    elif isinstance(told, bool):
        # Votes under this load are 0 or 1: what changed was the other one.
        changed, previous = told, 1 - value if told else value
    else:
        kind = type(told).__name__
        raise TypeError(f"cast returned {kind}; it takes None, a bool or a hotcount.Cast")
    flags = frames.TOLD_CAST | (frames.CHANGED if changed else 0)
    return frames.Told(frames.OK, flags, value, previous)


def outcome_of(failure: Exception, *, reads: bool) -> int:
    """The outcome of a failed call, by the class of hotcount's error; a read changes nothing."""
    known = isinstance(failure, HotcountError) and not isinstance(failure, OutcomeUnknownError)
    return frames.FAILED if known or reads else frames.UNKNOWN


def _whole(name: str, number: Any) -> int:
    try:
        whole = number.__index__()
    except AttributeError:
        raise TypeError(f"{name} returned {type(number).__name__}; it takes an int") from None
    if not -(1 << 63) <= whole < 1 << 63:
        raise OverflowError(f"{name} returned {number}, which is no signed 64-bit integer")
    return int(whole)


if __name__ == "__main__":
    from hotcount._load_ledger import main

    sys.exit(main())
