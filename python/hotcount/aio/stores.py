"""aio.Memory, aio.Redis and aio.Database: the stores for event loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

from hotcount._lifetime import AsyncLifetime
from hotcount._native import native
from hotcount._types import Seconds
from hotcount.stores import DatabaseBase, For, MemoryBase, RedisBase, open_url


class Memory(AsyncLifetime, MemoryBase):
    """hotcount.Memory for event loops. Its calls are done when they return.

    Example:
        >>> import asyncio
        >>> from hotcount import aio
        >>> async def main() -> bool:
        ...     async with aio.Memory("memory://votes") as store:
        ...         return await store.ping()
        >>> asyncio.run(main())
        True
    """

    __slots__ = ("__weakref__",)

    @native
    async def ping(self, *, timeout: Seconds | None = None) -> bool:
        """As hotcount.Memory.ping, to be awaited."""

    @native
    async def ready(self, for_: For = "writes", *, timeout: Seconds | None = None) -> bool:
        """As hotcount.Memory.ready, to be awaited."""


class Redis(AsyncLifetime, RedisBase):
    """hotcount.Redis for event loops: its calls are awaited.

    Each loop that uses it has a connection of its own, made on first use and closed with the loop.
    Threads may use the same store: hotcount.Counter takes this object too, and aio.Counter takes a
    hotcount.Redis. A call starts when it is made, not when it is awaited. stats() is not awaited.
    """

    __slots__ = ("__weakref__",)

    @native
    async def ping(self, *, timeout: Seconds | None = None) -> bool:
        """As hotcount.Redis.ping, to be awaited."""

    @native
    async def ready(self, for_: For = "writes", *, timeout: Seconds | None = None) -> bool:
        """As hotcount.Redis.ready, to be awaited."""

    @native
    async def execute(
        self, *command: str | bytes | int | float, timeout: Seconds | None = None
    ) -> Any:
        """As hotcount.Redis.execute, to be awaited.

        Cancelling withdraws a command that is not sent yet; the reply to a sent one is dropped.
        """


class Database(AsyncLifetime, DatabaseBase):
    """hotcount.Database for event loops: its calls are awaited.

    aio.Votes takes an aio.Database or a hotcount.Database, and so does hotcount.Votes. The
    constructor opens the database and blocks the loop meanwhile. A vote that is being written when
    the object is closed is finished, and its caller gets the outcome. A vote that waits to be
    written then ends with ClosedError, unless another Database of the same URL and options is open.
    """

    __slots__ = ("__weakref__",)

    @native
    async def ping(self, *, timeout: Seconds | None = None) -> bool:
        """As hotcount.Database.ping, to be awaited."""

    @native
    async def ready(self, for_: For = "writes", *, timeout: Seconds | None = None) -> bool:
        """As hotcount.Database.ready, to be awaited."""


Store = Union[Memory, Redis]
STORES: dict[str, Callable[..., Store]] = {"Memory": Memory, "Redis": Redis}
DATABASES: dict[str, Callable[..., Database]] = {"Database": Database}
ALL: dict[str, Callable[..., Store | Database]] = {**STORES, **DATABASES}


def connect(url: str, **options: Any) -> Memory | Redis | Database:
    """As hotcount.connect, for event loops; not awaited. Opening a database blocks the loop.

    >>> from hotcount import aio
    >>> aio.connect("memory://likes", max_keys=10).max_keys
    10
    """
    return open_url("connect", url, options, ALL)


def connect_store(url: str, **options: Any) -> Memory | Redis:
    """As hotcount.connect_store, for event loops; not awaited."""
    return open_url("connect_store", url, options, STORES)


def connect_database(url: str, **options: Any) -> Database:
    """As hotcount.connect_database, for event loops; not awaited. It blocks the loop."""
    return open_url("connect_database", url, options, DATABASES)
