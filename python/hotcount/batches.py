"""The results of batch calls: Sequences in the order of the elements, with columns for NumPy.

A batch is immutable and equal to a list or tuple of the same elements. `numpy.asarray(column)` is
an array over the same memory, which it keeps alive. A failed element has a zero in each column and
its exception in `.errors`, by index.

FastAPI, pydantic and Django REST framework take a batch or a column for a list: its JSON is the
array of its elements. So does Flask after ``hotcount.integrations.flask.install(app)``.
"""

from __future__ import annotations

import html
import inspect
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Generic, SupportsIndex, TypeVar, get_args, overload

from hotcount._core import Buffer, Handle
from hotcount._native import batch, native
from hotcount._types import ReadOnly
from hotcount.errors import HotcountError
from hotcount.results import Cast, Count, Decision, Queued, Upsert

T = TypeVar("T")
Self = TypeVar("Self", bound="Values[Any]")
Errors = dict[int, HotcountError]


class Values(Handle, Sequence[T], Generic[T]):
    """An immutable Sequence over memory of C++."""

    __slots__ = ("__weakref__",)

    @native
    def __len__(self) -> int:
        """How many elements."""

    @native
    def __iter__(self) -> Iterator[T]:
        """The elements, in order."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self: Self, index: slice) -> Self: ...
    @native
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """An element, or a slice of the same class, which shares the memory."""

    def __eq__(self, other: object) -> bool:
        """Whether a batch, list or tuple has equal elements; errors do not count."""
        size = len(self)
        if isinstance(other, (Values, list, tuple)):
            return size == len(other) and list(self) == list(other)
        return NotImplemented

    # A batch may equal a list, so like a list it cannot be hashed.
    __hash__ = None  # type: ignore[assignment]

    def index(self, value: Any, start: int = 0, stop: int = sys.maxsize) -> int:
        """The first index of a value; ValueError if no element equals it."""
        return list(self).index(value, start, stop)

    def count(self, value: Any) -> int:
        """How many elements equal the value."""
        return list(self).count(value)

    def tolist(self) -> list[T]:
        """The elements as a list of Python objects."""
        return list(self)

    @classmethod
    def _of(cls, elements: list[Any]) -> Any:
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """For pydantic, and so for FastAPI: a batch, or the list of its elements."""
        from pydantic_core import core_schema

        # The element type: int for Column[int], Count for Counts, whose base is Batch[Count].
        own: Any = cls
        (element,) = get_args(source) or get_args(own.__orig_bases__[0])
        listed: Any = list
        elements = handler.generate_schema(listed[Any if isinstance(element, TypeVar) else element])
        made = core_schema.no_info_after_validator_function(cls._of, elements)
        taken = core_schema.union_schema([core_schema.is_instance_schema(cls), made])
        shown = core_schema.plain_serializer_function_ser_schema(list, return_schema=elements)
        return core_schema.json_or_python_schema(made, taken, serialization=shown)

    def __repr__(self) -> str:
        """The first elements; all of them up to ten."""
        size = len(self)
        text = ", ".join(map(repr, self if size <= 10 else self[:9]))
        if size > 10:
            text += f", ..., {self[-1]!r}"
        more = f", {size} elements" if size > 10 else ""
        errors = f", errors={self.errors!r}" if isinstance(self, Batch) and self.errors else ""
        return f"{type(self).__name__}([{text}]{more}{errors})"


@batch
class Column(Values[T], Buffer):
    """One column of a batch: a Sequence of int, bool or float, and a buffer.

    numpy.asarray(column) is an int64, int8, bool or float64 array over the same memory.

    >>> import hotcount
    >>> batch = hotcount.Limiter("memory://", "2/minute").hit_many(["a", "a", "a"])
    >>> memoryview(batch.allowed).tolist(), memoryview(batch.remaining).format
    ([True, True, False], 'l')
    """

    __slots__ = ()

    @native
    def __init__(self, format: str, data: bytes) -> None:
        """From packed elements, as pickle does: format 'l' (int64), 'b' (int8), '?' or 'd'.

        ConfigError for another format, or if the data is not a whole number of elements.
        """

    def __reduce__(self) -> tuple[Any, ...]:
        """The elements, packed."""
        view = memoryview(self)
        return type(self), (view.format, view.tobytes())

    def tolist(self) -> list[Any]:
        """The elements as a list of Python's numbers. NaN is None: JSON has no NaN."""
        return [None if each != each else each for each in self]

    @classmethod
    def _of(cls, elements: list[Any]) -> Any:
        """The column of these elements, of the type that they have."""
        kinds = set(map(type, elements))
        format = "?" if kinds == {bool} else "l" if kinds <= {int} else "d"
        return Column(format, struct.pack(f"{len(elements)}{format}", *elements))


class Batch(Values[T]):
    """The result of a batch call: one element for each element of the argument, in its order."""

    __slots__ = ()

    @classmethod
    def _of(cls, elements: list[Any]) -> Any:
        """The batch of these elements."""
        return cls(elements)

    @property
    @native
    def errors(self) -> Errors:
        """The exceptions of failed elements, by index; empty where all succeeded."""

    @classmethod
    def _columns(cls) -> list[str]:
        return [name for base in cls.__mro__ for name in inspect.get_annotations(base)]

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns as lists, by their names: for JSON, and pandas.DataFrame(batch.to_dict()).

        >>> import hotcount
        >>> hotcount.Limiter("memory://", "1/minute").hit_many(["a", "a"]).to_dict()["allowed"]
        [True, False]
        """
        return {name: getattr(self, name).tolist() for name in self._columns()}

    def _repr_html_(self) -> str:
        """The first 20 rows, for notebooks."""
        columns = self[:20].to_dict()
        lines = [["", *columns], *zip(range(20), *columns.values())]
        rows = ["".join(f"<td>{html.escape(str(cell))}</td>" for cell in line) for line in lines]
        more = f"<p>{len(self)} rows</p>" if len(self) > 20 else ""
        table = "".join(f"<tr>{row}</tr>" for row in rows).replace("td>", "th>", 2 * len(lines[0]))
        return f"<table>{table}</table>{more}"

    def __reduce__(self) -> tuple[Any, ...]:
        """The elements and the errors."""
        return type(self), (list(self), self.errors)


@batch
class Int64Batch(Batch[int], Column[int]):
    """One int for each element; itself the column.

    A failed element is 0.

    >>> import hotcount
    >>> batch = hotcount.Counter("memory://").add_many(["a", "b", "a"])
    >>> batch, batch[1:], batch == [1, 1, 2]
    (Int64Batch([1, 1, 2]), Int64Batch([1, 2]), True)
    """

    __slots__ = ()

    @native
    def __init__(self, values: Sequence[int], errors: Errors | None = None) -> None:
        """A batch of these values, for tests and pickle."""

    def to_dict(self) -> dict[str, list[Any]]:
        """The one column, as 'value'."""
        return {"value": list(self)}


@batch
class AddedBatch(Batch[int | Queued]):
    """The answer of Counter.add_many with retry=: an int, or a Queued where the add waits.

    value is the number after the add, 0 where it waits; waiting, how many waited then, 0 where it
    is counted; durable, whether it waits on the disk. A failed element is 0 in all columns.

    Example:
        >>> import hotcount
        >>> counter = hotcount.Counter("memory://", retry=hotcount.RetryQueue())
        >>> batch = counter.add_many(["a", "b", "a"])
        >>> batch, list(batch.value), list(batch.waiting)
        (AddedBatch([1, 1, 2]), [1, 1, 2], [0, 0, 0])
    """

    __slots__ = ()

    value: ReadOnly[Column[int]]
    waiting: ReadOnly[Column[int]]
    durable: ReadOnly[Column[bool]]

    @native
    def __init__(self, values: Sequence[int | Queued], errors: Errors | None = None) -> None:
        """A batch of these values, for tests and pickle."""


@batch
class Decisions(Batch[Decision]):
    """The answer of Limiter.hit_many.

    allowed is whether it was admitted; remaining, what is left after this element; retry_after,
    seconds, NaN where it never will be admitted. A failed element is not allowed.

    Example:
        >>> import hotcount
        >>> batch = hotcount.Limiter("memory://", "2/minute").hit_many(["a", "a", "a"])
        >>> [bool(decision) for decision in batch], list(batch.remaining)
        ([True, True, False], [1, 0, 0])
    """

    __slots__ = ()

    allowed: ReadOnly[Column[bool]]
    remaining: ReadOnly[Column[int]]
    retry_after: ReadOnly[Column[float]]

    @native
    def __init__(self, values: Sequence[Decision], errors: Errors | None = None) -> None:
        """A batch of these values, for tests and pickle."""


@batch
class Upserts(Batch[Upsert]):
    """The answer of LiveSets.upsert_many.

    status is each Upsert as its number, int8; applied, whether it is APPLIED. A failed element is
    Upsert.FAILED.

    Example:
        >>> import hotcount
        >>> sets = hotcount.LiveSets("memory://")
        >>> sets.create("k", 60, {"a": 1})
        >>> batch = sets.upsert_many([("k", "b", 2), ("never made", "b", 2)])
        >>> [str(upsert) for upsert in batch], list(batch.status), list(batch.applied)
        (['APPLIED', 'ABSENT'], [1, 2], [True, False])
    """

    __slots__ = ()

    status: ReadOnly[Column[int]]
    applied: ReadOnly[Column[bool]]

    @native
    def __init__(self, values: Sequence[Upsert], errors: Errors | None = None) -> None:
        """A batch of these values, for tests and pickle."""


@batch
class Casts(Batch[Cast]):
    """The outcomes of Votes.cast_many.

    counted: the vote counts now. changed: this call changed the vote. previous, value: the vote
    before and now. pending: the vote waits to be written, and its effect is not known yet: the
    columns changed and previous have False and 0, while its Cast has None. A failed element is
    Cast(False, False, 0, 0).
    """

    __slots__ = ()

    counted: ReadOnly[Column[bool]]
    changed: ReadOnly[Column[bool]]
    previous: ReadOnly[Column[int]]
    value: ReadOnly[Column[int]]
    pending: ReadOnly[Column[bool]]

    @native
    def __init__(self, values: Sequence[Cast], errors: Errors | None = None) -> None:
        """A batch of these values, for tests and pickle."""


@batch
class Counts(Batch[Count]):
    """The counts that Votes.count_many read.

    value: the counts. exact: the count agrees with the votes committed at as_of. as_of: seconds
    since 1970 UTC. pending: votes acknowledged but not yet in value.
    """

    __slots__ = ()

    value: ReadOnly[Column[int]]
    exact: ReadOnly[Column[bool]]
    as_of: ReadOnly[Column[float]]
    pending: ReadOnly[Column[int]]

    @native
    def __init__(self, values: Sequence[Count], errors: Errors | None = None) -> None:
        """A batch of these values, for tests and pickle."""


def _register_with_fastapi() -> bool:
    """Registers batches with FastAPI's encoder, which looks up encoders by type, as lists.

    C++ calls this when a batch is made and FastAPI is loaded. False: FastAPI is being imported.
    """
    try:
        from fastapi.encoders import ENCODERS_BY_TYPE, jsonable_encoder
    except ImportError:
        return False

    def encode(values: Values[Any]) -> Any:
        return jsonable_encoder(values.tolist())

    for cls in (Column, Int64Batch, AddedBatch, Decisions, Upserts, Casts, Counts):
        ENCODERS_BY_TYPE[cls] = encode
    return True
