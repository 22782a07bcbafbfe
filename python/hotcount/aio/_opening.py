"""What is awaited for something that `async with` closes, or entered by `async with` itself."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=AbstractAsyncContextManager[Any])


class Opening(Generic[T]):
    """`await opening`, or `async with opening as what_it_opens`. It starts then."""

    __slots__ = ("_open", "_opened")

    def __init__(self, open: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """open: a coroutine function, called once."""
        self._open = open
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        """What it opens."""
        return self._open().__await__()

    async def __aenter__(self) -> T:
        """What it opens, entered."""
        self._opened = await self
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """As that of what it opened."""
        assert self._opened is not None
        await self._opened.__aexit__(kind, error, traceback)
