"""URLs with a password in every odd shape, and where it must not be seen again."""

from __future__ import annotations

import itertools
import pickle
import traceback
from collections.abc import Iterator
from contextlib import suppress

# Two words, with the odd character in between: half a password is a secret too.
FIRST, SECOND = "zqcanaryone", "zqcanarytwo"

SCHEMES = (
    *("memory", "redis", "rediss", "valkey", "valkeys", "redis+unix", "valkey+unix", "unix"),
    *("sqlite", "postgresql", "postgres", "postgresql+psycopg", "mariadb", "mysql"),
    *("mysql+pymysql", "redis+cluster", "nosuch", "no such", "Redis"),
)
BETWEEN = (
    *("", "/", "?", "#", "@", ":", "&", "=", "%", "%zz", "%2", "%00", "\0", " ", "\t", "\r\n"),
    *("é", "☃", "[", "]", "\\", "'", '"', "+", ";", "://", "//", "?db=", "&db=", "$(x)", "{}"),
)
# {s} is the scheme, {p} the password, {h} an address where nobody listens.
PLACES = (
    *("{s}://user:{p}@{h}/0", "{s}://:{p}@{h}/0", "{s}://user:{p}@{h}", "{s}://user:{p}@{h}/base"),
    *("{s}://user:{p}@/base", "{s}://user:{p}@", "{s}://user:{p}", "{s}://user:{p}/base"),
    *("{s}://user:1{p}", "{s}://us@er:{p}@{h}/0", "{s}://user:{p}@user:{p}@{h}/0"),
    *("{s}://{h}/0?password={p}", "{s}://user:{p}@{h}/0?password={p}", "{s}://{h}/0?sslmode={p}"),
    *("{s}://{h}/0?pwd={p}", "{s}://{h}/0?ssl={p}", "{s}://{h}/0?ssl_verify={p}"),
    *("{s}://{h}/0?charset={p}", "{s}://{h}/0?mode={p}", "{s}://{h}?db={p}", "{s}:///x?db={p}"),
    *("{s}://{h}/0?connect_timeout={p}", "{s}://{h}?max_keys={p}", "{s}://{h}?when_full={p}"),
    *("{s}://user:{p}@127.0.0.1:99999/0", "{s}://user:{p}@127.0.0.1:x/0", "{s}://user:{p}@[::1/0"),
    *("{s}://user:{p}@{h}/0?nosuch=1", "{s}://user:{p}@{h}/0?db", "{s}://user:{p}@{h}/no/such"),
    *("{s}://user:{p}@/no/such.sock", "{s}://user:{p}@{h}/%zz", "{s}:{p}@{h}", "{s}:/user:{p}@{h}"),
    *("user:{p}@{h}/0", "//user:{p}@{h}/0", "{p}", " {s}://user:{p}@{h}/0"),
)
NOBODY = "127.0.0.1:1"


def says_itself(place: str, between: str) -> bool:
    """Shapes in which what is written is a host, a path or a scheme, and nothing tells that it is
    half a password."""
    if between == "@":  # user:one@two: "two" is where the host stands.
        return place.endswith(("{p}", "{p}/base"))
    return between == "://" and place in ("{p}",)


def shapes(scheme: str) -> Iterator[str]:
    for place, between in itertools.product(PLACES, BETWEEN):
        if "{s}" not in place and scheme != SCHEMES[0]:
            continue
        if not says_itself(place, between):
            yield place.format(s=scheme, p=FIRST + between + SECOND, h=NOBODY)


def texts_of_exception(error: BaseException) -> Iterator[str]:
    """All that a log or a reporter of errors may show of it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        waiting += [each.__cause__, each.__context__]
        yield from (str(each), repr(each), repr(each.args), repr(vars(each)))
        yield from map(str, getattr(each, "__notes__", ()))
        # Locals of frames, as tools print them: those that are objects of ours.
        for frame, _ in traceback.walk_tb(each.__traceback__):
            for value in list(frame.f_locals.values()):
                if type(value).__module__.startswith("hotcount"):
                    with suppress(TypeError):  # One whose __init__ did not end.
                        yield repr(value)


def texts_of_object(thing: object) -> Iterator[str]:
    yield from (repr(thing), str(thing), format(thing), repr(dir(thing)))
    stats = getattr(thing, "stats", None)
    if stats is not None:
        yield repr(stats())
    try:
        yield repr(pickle.dumps(thing))
    except TypeError as refused:
        yield from texts_of_exception(refused)


def leaks(text: str) -> bool:
    return FIRST in text or SECOND in text
