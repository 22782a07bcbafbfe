"""The frames of docs/reference/load-protocol.md, as a driver sends and receives them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

VERSION = 1
MOST_AT_ONCE = 1024
MOST_FRAME = 1 << 20

SET_UP, CAST, READ, ROWS, COUNTS, BYE = 1, 2, 3, 4, 5, 6
_HELLO, _READY, _ANSWER, _ROW_PAGE, _COUNT_PAGE, _ERROR = 129, 130, 131, 132, 133, 134

OK, FAILED, UNKNOWN = 0, 1, 2
TOLD_COUNT, TOLD_CAST, CHANGED = 1, 2, 4
_DURABLE, _EXACT = 1, 2

_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<IB")
_ANSWER_FRAME = struct.Struct("<IBQBBqq")
_PAGE = 20_000

CAST_BODY = struct.Struct("<Qqqq")
READ_BODY = struct.Struct("<Qq")
RANGE_BODY = struct.Struct("<qq")
SET_UP_BODY = struct.Struct("<BQQ")


class Told(NamedTuple):
    """The outcome of a call, for the frame of its answer."""

    outcome: int
    told: int = 0
    value: int = 0
    previous: int = 0


def _frame(kind: int, body: bytes) -> bytes:
    return _HEAD.pack(1 + len(body), kind) + body


def hello(connections: int, in_flight: int, *, control: bool) -> bytes:
    return _frame(_HELLO, struct.pack("<IIIB", VERSION, connections, in_flight, control))


def ready(acknowledged: str, may_lose: str, place: str, *, durable: bool, exact: bool) -> bytes:
    body = bytes([_DURABLE * durable + _EXACT * exact])
    for text in (acknowledged, may_lose, place):
        encoded = text.encode()
        body += struct.pack("<H", len(encoded)) + encoded
    return _frame(_READY, body)


def answer(number: int, told: Told) -> bytes:
    return _ANSWER_FRAME.pack(_ANSWER_FRAME.size - _LENGTH.size, _ANSWER, number, *told)


def error(text: str) -> bytes:
    return _frame(_ERROR, text.encode()[: MOST_FRAME // 2])


def row_pages(rows: Iterable[tuple[int, ...]]) -> Iterator[bytes]:
    return _pages(_ROW_PAGE, "<qqq", rows)


def count_pages(counts: Iterable[tuple[int, ...]]) -> Iterator[bytes]:
    return _pages(_COUNT_PAGE, "<qq", counts)


def _pages(kind: int, form: str, items: Iterable[tuple[int, ...]]) -> Iterator[bytes]:
    pack = struct.Struct(form).pack
    page: list[bytes] = []
    for item in items:
        page.append(pack(*item))
        if len(page) == _PAGE:
            yield _frame(kind, b"\0" + b"".join(page))
            page.clear()
    yield _frame(kind, b"\1" + b"".join(page))


class Inbox:
    """Splits received bytes into frames."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        data = self._rest + data
        at = 0
        while len(data) - at >= _LENGTH.size:
            end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            if len(data) < end:
                break
            yield data[at + _LENGTH.size], data[at + _HEAD.size : end]
            at = end
        self._rest = data[at:]
