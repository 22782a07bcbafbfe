"""@limiter.limit: a hit before each call, of plain and async functions."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
from collections.abc import AsyncIterator, Iterator
from typing import Any, Union

import hotcount
import pytest
from hotcount import LimitExceeded, aio

from tests.support.servers import RedisServer

AnyLimiter = Union[hotcount.Limiter, aio.Limiter]
LIMITERS: list[Any] = [hotcount.Limiter, aio.Limiter]


@pytest.fixture(params=LIMITERS, ids=["sync", "aio"])
def limiter(request: pytest.FixtureRequest) -> AnyLimiter:
    made: AnyLimiter = request.param("memory://", "2/300 days", name="api")
    return made


def test_a_refused_call_is_not_made(limiter: AnyLimiter) -> None:
    calls = []

    @limiter.limit(key="k")
    def work(value: int) -> int:
        """Works."""
        calls.append(value)
        return value

    assert [work(1), work(value=2)] == [1, 2]
    with pytest.raises(LimitExceeded, match=r"'api' refuses.*limited.*retry after") as raised:
        work(3)
    assert calls == [1, 2]
    decision = raised.value.decision
    assert (decision.allowed, decision.reason, decision.limit) == (False, "limited", 2)
    assert work.__name__ == "work"
    assert work.__doc__ == "Works."
    assert str(inspect.signature(work)) == "(value: 'int') -> 'int'"


async def test_an_async_function_is_awaited(limiter: AnyLimiter) -> None:
    @limiter.limit(key="k")
    async def work(value: int) -> int:
        await asyncio.sleep(0)
        return value

    assert inspect.iscoroutinefunction(work)
    results = await asyncio.gather(*(work(i) for i in range(5)), return_exceptions=True)
    assert results[:2] == [0, 1]
    assert all(isinstance(error, LimitExceeded) for error in results[2:])


async def test_an_async_function_does_not_block_its_loop(own_redis: RedisServer) -> None:
    # A plain Limiter, as it stands in many modules.
    limiter = hotcount.Limiter(own_redis.redis(timeout=20), "2/300 days")

    @limiter.limit(key="k")
    async def work() -> str:
        return "done"

    with own_redis.stopped():
        working = asyncio.create_task(work())
        for _ in range(10):  # Blocked, nobody would let the server go on.
            await asyncio.sleep(0.001)
        assert not working.done()
    assert await working == "done"


def test_key_and_cost_ask_for_arguments_by_name(limiter: AnyLimiter) -> None:
    seen = []

    def cost_of(size: int, factor: int = 1) -> int:
        seen.append((size, factor))
        return size

    @limiter.limit(key=lambda user: user, cost=cost_of)
    def upload(request: str, user: str = "nobody", *, size: int = 1) -> str:
        return user

    assert upload("r") == "nobody"
    assert upload("r", "anna", size=2) == "anna"
    assert seen == [(1, 1), (2, 1)]
    with pytest.raises(LimitExceeded):
        upload("r", user="anna")
    with pytest.raises(LimitExceeded) as raised:
        upload("r", user="ben", size=3)
    assert raised.value.decision.retry_after is None
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        upload("r", colour="red")  # type: ignore[call-arg]


def test_a_key_of_any_arguments_is_called_as_the_function_is(limiter: AnyLimiter) -> None:
    seen = []

    def key(*args: Any, **kwargs: Any) -> str:
        seen.append((args, kwargs))
        return "k"

    @limiter.limit(key=key)
    def work(one: int, two: int) -> None: ...

    work(1, two=2)
    assert seen == [((1,), {"two": 2})]


def test_methods_know_their_object(limiter: AnyLimiter) -> None:
    class Account:
        def __init__(self, name: str) -> None:
            self.name = name

        @limiter.limit(key=lambda self: self.name)
        def pay(self, amount: int) -> int:
            return amount

        @staticmethod
        @limiter.limit(key="static")
        def quote() -> int:
            return 7

        @classmethod
        @limiter.limit(key=lambda cls: cls.__name__)
        def count(cls) -> str:
            return cls.__name__

    anna, ben = Account("anna"), Account("ben")
    assert [anna.pay(1), anna.pay(2), ben.pay(3)] == [1, 2, 3]
    with pytest.raises(LimitExceeded):
        anna.pay(4)
    assert [ben.pay(5), Account.quote(), Account.count()] == [5, 7, "Account"]


def test_an_async_key_is_awaited(limiter: AnyLimiter) -> None:
    async def key(user: str) -> tuple[str, str]:
        await asyncio.sleep(0)
        return ("user", user)

    @limiter.limit(key=key)
    async def work(user: str) -> str:
        return user

    assert asyncio.run(work("anna")) == "anna"
    with pytest.raises(TypeError, match=r"key is async, and .*plain\(\) is not"):

        @limiter.limit(key=key)
        def plain(user: str) -> None: ...


def test_partials_and_objects_are_decorated(limiter: AnyLimiter) -> None:
    class Work:
        async def __call__(self, value: int) -> int:
            return value

    assert limiter.limit(key="partial")(functools.partial(max, 3))(2) == 3
    assert asyncio.run(limiter.limit(key="object")(Work())(5)) == 5


def test_what_is_no_function_is_refused(limiter: AnyLimiter) -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    class Generator:
        def __call__(self) -> Iterator[int]:
            yield 1

    decorate = limiter.limit(key="k")
    bad: Any
    for bad, message in [
        (generator, r"does not decorate generators: call hit\(\) in .*generator\(\)"),
        (async_generator, r"does not decorate generators"),
        (Generator(), r"call hit\(\) in Generator\(\)"),
        (staticmethod(print), "below @staticmethod"),
        (classmethod(print), "below @classmethod"),
        (int, "decorates functions, not <class 'int'>"),
        (None, "decorates functions, not None"),
    ]:
        with pytest.raises(TypeError, match=message):
            decorate(bad)


def test_a_bad_key_or_cost_is_refused_where_it_stands(limiter: AnyLimiter) -> None:
    def work(user: str) -> None: ...

    options: Any
    for options, message in [
        ({"key": 7}, "key must be str or bytes or tuple, or a function .*, not int"),
        ({"key": None}, "key must be .* not NoneType"),
        ({"key": "k", "cost": "3"}, "cost must be int, or a function .*, not str"),
        ({"key": "k", "cost": True}, "cost must be .* not bool"),
        (
            {"key": lambda name: name},
            r"key asks for 'name', which .*work\(\) does not have: .*user",
        ),
    ]:
        with pytest.raises(TypeError, match=message):
            limiter.limit(**options)(work)
    with pytest.raises(TypeError):
        limiter.limit()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="key"):
        limiter.limit(key=lambda user: 7)(work)("anna")
    with pytest.raises(hotcount.ConfigError, match="cost is 0"):
        limiter.limit(key="k", cost=0)(work)("anna")


def test_what_the_function_raises_passes(limiter: AnyLimiter) -> None:
    @limiter.limit(key="k")
    def work() -> None:
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        work()


def test_the_error_survives_pickle_and_copy(limiter: AnyLimiter) -> None:
    @limiter.limit(key="k", cost=3)
    def work() -> None: ...

    with pytest.raises(LimitExceeded) as raised:
        work()
    for again in (pickle.loads(pickle.dumps(raised.value)), copy.deepcopy(raised.value)):
        assert again.decision == raised.value.decision
        assert str(again) == str(raised.value)
        assert "never" in str(again)


def test_a_key_takes_the_keywords_that_it_names_of_a_function_that_takes_any() -> None:
    limiter = hotcount.Limiter("memory://", "1/day")

    @limiter.limit(key=lambda request, pk, page=1: f"{pk}:{page}")
    def view(request: str, **kw: Any) -> dict[str, Any]:
        return kw

    assert view("r", pk=7, lang="en") == {"pk": 7, "lang": "en"}
    assert limiter.peek("7:1").remaining == 0
    assert view("r", pk=7, page=2) == {"pk": 7, "page": 2}
    with pytest.raises(TypeError, match="pk"):
        view("r", lang="en")
