"""Types that many signatures name. They hold at run time: typing.get_type_hints reads them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar, Union

Value = TypeVar("Value", covariant=True)


class ReadOnly(Generic[Value]):
    """The type of a read-only attribute, for type checkers; `attributes` makes such attributes."""

    def __get__(self, instance: object, owner: type | None = None, /) -> Value: ...
    def __set__(self, instance: object, value: NoReturn, /) -> None: ...


if TYPE_CHECKING:
    # As in typeshed: may be None, but most programs never get None and need no check for it.
    MaybeNone = Any
else:
    MaybeNone = None

Key = Union[str, bytes]
Seconds = Union[float, timedelta]
OnErrors = Literal["raise", "return"]

Keys = Iterable[Key]
Amounts = Union[Mapping[str, int], Mapping[bytes, int]]
LimiterKey = Union[str, bytes, tuple[Union[str, bytes], ...]]
LimiterKeys = Union[Iterable[LimiterKey], Mapping[Any, int]]
Numbers = Union[int, Iterable[int]]

# An item's or a user's, of the type that the tables have.
Id = Union[int, str, uuid.UUID]
Ids = Iterable[Id]
IdType = Union[type[int], type[str], type[uuid.UUID]]
