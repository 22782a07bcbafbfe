"""Many callers at once: threads and processes."""

import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.support.fired import fired

T = TypeVar("T")

THREADS = 32


def in_threads(work: Callable[[int], T], numbers: range) -> Callable[[], list[T]]:
    """Starts a thread for each number.

    Returns:
        Waits for them and returns their results, in order; the first failure is raised.
    """
    results: dict[int, T] = {}
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            results[number] = work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()

    def done() -> list[T]:
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return [results[number] for number in numbers]

    return done


def in_thread(call: Callable[[], T]) -> Callable[[], T]:
    """The same of one call."""
    done = in_threads(lambda _: call(), range(1))
    return lambda: done()[0]


def together(work: Callable[[int], T], threads: int = THREADS) -> list[T]:
    """Runs work(0), work(1), ... at the same time and returns their results, in order.

    All wait for each other first, so that they really meet; the first failure is raised.
    """
    gate = threading.Barrier(threads)

    def met(index: int) -> T:
        gate.wait()
        if index == 0:
            fired(f"{threads} callers")
        return work(index)

    return in_threads(met, range(threads))()


def join(threads: Iterable[threading.Thread]) -> None:
    """Starts them, and returns when all have ended."""
    started = list(threads)
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


@contextmanager
def beside(*works: Callable[[threading.Event], object]) -> Iterator[None]:
    """Runs each in a thread of its own beside the block, and sets the event that each is given when
    the block has ended; the first failure is raised then."""
    ended = threading.Event()
    done = in_threads(lambda number: works[number](ended), range(len(works)))
    try:
        yield
    finally:
        ended.set()
        done()


@contextmanager
def flushing_scripts(redis: Any) -> Iterator[Callable[[], int]]:
    """Removes the scripts of a Redis ten times a second; yields what says how often it has."""
    latest = [0]

    def flush(ended: threading.Event) -> None:
        while not ended.wait(0.1):
            redis.execute("SCRIPT", "FLUSH")
            latest[0] += 1

    with beside(flush):
        yield lambda: latest[0]


def in_child(work: Callable[[], T]) -> T:
    """Runs work in a forked child and returns its result; what it raises is raised here."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        # The child leaves by _exit, whatever happens: pytest must not run twice.
        status = 1
        try:
            os.close(reader)
            try:
                answer: tuple[bool, Any] = (True, work())
            except BaseException as failure:
                answer = (False, failure)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(answer, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child died: status {status}"
    good, result = pickle.loads(data)
    if not good:
        raise result
    return result  # type: ignore[no-any-return]
