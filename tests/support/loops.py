"""Event loops of each kind, for tests that are to hold on all of them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
import uvloop

T = TypeVar("T")


def not_here(*_: Any) -> Any:
    raise NotImplementedError


missing: Any = not_here


class LoopWithoutReaders(asyncio.SelectorEventLoop):
    """A loop that cannot watch descriptors, like a proactor loop."""

    add_reader = missing
    remove_reader = missing
    add_writer = missing
    remove_writer = missing


LoopFactory = Callable[[], asyncio.AbstractEventLoop]

LOOPS = [
    pytest.param(asyncio.SelectorEventLoop, id="stock"),
    pytest.param(uvloop.new_event_loop, id="uvloop"),
    pytest.param(LoopWithoutReaders, id="no-readers"),
]
# Where what is tested is the connection of a loop of its own.
LOOPS_WITH_READERS = LOOPS[:2]


def run(factory: LoopFactory, main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, in a new loop of that kind."""
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
