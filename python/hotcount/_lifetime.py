"""The end of objects made from a store: close() and `with`, or aclose() and `async with`."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from hotcount._core import Handle, NativeFunction
from hotcount._native import native

Self = TypeVar("Self", bound=Handle)


def _require_one_kind(cls: type) -> None:
    made = [base for base in cls.__mro__ if isinstance(vars(base).get("__init__"), NativeFunction)]
    for other in made[1:]:
        if not issubclass(made[0], other):
            both = " and ".join(base.__name__.removesuffix("Base") for base in (made[0], other))
            raise TypeError(
                f"{cls.__name__} derives from hotcount's {both}, and an object can be only one of "
                "them: keep the other in an attribute"
            )


class Lifetime(Handle):
    """close() and aclose(), and an end of the `with` block that calls the former."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuses a class that would be a Limiter and a Counter."""
        super().__init_subclass__(**options)
        _require_one_kind(cls)

    @native
    def close(self) -> None:
        """Ends this object, and a store that was made from a URL for it alone.

        Later calls raise ClosedError. Calls in progress go on if the store stays open, or another
        store object of its URL and options is open; otherwise those on a Redis end at once. Closing
        twice does nothing.
        """

    @native
    async def aclose(self) -> None:
        """close(), for code in an event loop that ends all its objects by `await x.aclose()`.

        It is done when it returns, awaited or not.
        """

    @native
    def _calls(self) -> dict[str, int]:
        """The calls of this object in this process, by outcome: 'ok', or the code of the error."""

    @native
    def __enter__(self: Self) -> Self:
        """This object; the end of the block closes it."""

    @native
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """close()."""

    @property
    @native
    def closed(self) -> bool:
        """Whether close() was called, here or on the store."""


class AsyncLifetime(Handle):
    """aclose(), and an end of the `async with` block that calls it."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuses a class that would be a Limiter and a Counter."""
        super().__init_subclass__(**options)
        _require_one_kind(cls)

    @native
    async def aclose(self) -> None:
        """Ends this object, and a store that was made from a URL for it alone.

        Later calls raise ClosedError. Calls in progress go on if the store stays open, or another
        store object of its URL and options is open. Otherwise those on a Redis end, with
        ClosedError if nothing was applied, else with OutcomeUnknownError. It is done when it
        returns, awaited or not. Closing twice does nothing.
        """

    @native
    def _calls(self) -> dict[str, int]:
        """The calls of this object in this process, by outcome: 'ok', or the code of the error."""

    @native
    async def __aenter__(self: Self) -> Self:
        """This object; the end of the block closes it."""

    @native
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """aclose()."""

    if not TYPE_CHECKING:  # Type checkers are to refuse the name.

        @property
        def close(self) -> None:
            """No method of objects for event loops: `await x.aclose()` ends them."""
            # Raises another error if __init__ has not run.
            _ = self.closed
            name = type(self).__name__
            raise AttributeError(
                f"{name} of hotcount.aio has no close(): `await x.aclose()` ends it"
            )

    @property
    @native
    def closed(self) -> bool:
        """Whether aclose() was called, or the store was closed."""
