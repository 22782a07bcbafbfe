"""Limiter(increx=True): hits that INCREX counts, beside all that the script does to a key."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hotcount
import pytest
from hotcount import aio

from tests.support.increx_server import (
    HAVE_IT,
    LACK_IT,
    Dialect,
    IncrexServer,
    redis_8_8,
    unknown,
    without_right,
)
from tests.support.resp_server import Words
from tests.support.servers import RedisServer
from tests.support.together import together

pytestmark = pytest.mark.server

FIRST: Any = {"algorithm": "fixed_window", "align": "first"}
HOUR = 3600.0


@pytest.fixture
def server(redis_server: RedisServer) -> Iterator[IncrexServer]:
    with IncrexServer(redis_server.socket, redis_8_8) as server:
        yield server


@pytest.fixture
def store(server: IncrexServer) -> Iterator[hotcount.Redis]:
    with hotcount.Redis(server.url, timeout=20) as store:
        yield store


@pytest.fixture
def direct(redis_server: RedisServer) -> Iterator[hotcount.Redis]:
    with redis_server.redis(timeout=20) as direct:
        yield direct


def make(
    store: hotcount.Redis, name: str, rate: str = "5/hour", *, increx: bool = True
) -> hotcount.Limiter:
    return hotcount.Limiter(store, rate, name=name, increx=increx, **FIRST)


def state_key(name: str, rate: str = "5/hour") -> str:
    return f"limit:{name}:fixed_window_first:{rate}:k"


def fresh() -> str:
    return uuid.uuid4().hex


@pytest.mark.parametrize("dialect", HAVE_IT)
def test_a_server_that_has_increx_counts_the_hits(
    server: IncrexServer, store: hotcount.Redis, direct: hotcount.Redis, dialect: Dialect
) -> None:
    server.dialect, name = dialect, fresh()
    limiter = make(store, name)
    assert limiter.increx
    decisions = [limiter.hit("k") for _ in range(7)]
    assert [d.allowed for d in decisions] == [True] * 5 + [False] * 2
    assert [d.remaining for d in decisions] == [4, 3, 2, 1, 0, 0, 0]
    assert all(3500 < d.reset_after <= 3600 for d in decisions)
    assert all(d.retry_after == 0 for d in decisions[:5])
    assert all(d.retry_after == d.reset_after for d in decisions[5:])
    assert decisions[5].reason == "limited"
    assert decisions[5].violated
    # The first went by the script, beside the question.
    assert server.questions == 2
    assert len(server.hits) == 6
    assert direct.execute("GET", state_key(name)) == b"5"
    assert 0 < direct.execute("PTTL", state_key(name)) <= 3_600_000
    assert direct.execute("KEYS", "*increx.*") == []


@pytest.mark.parametrize("dialect", LACK_IT)
def test_a_server_that_has_not_what_hits_need_runs_the_script(
    server: IncrexServer, store: hotcount.Redis, dialect: Dialect
) -> None:
    server.dialect = dialect
    limiter = make(store, fresh())
    decisions = [limiter.hit("k") for _ in range(7)]
    assert [d.remaining for d in decisions] == [4, 3, 2, 1, 0, 0, 0]
    assert [d.allowed for d in decisions] == [True] * 5 + [False] * 2
    assert server.hits == []
    assert server.questions == 2, "it is asked once for each connection"


async def hits_at_once(
    limiter: aio.Limiter, keys: Sequence[str], others: Sequence[aio.Limiter] = ()
) -> list[hotcount.Decision]:
    """A hit of each key by each limiter, in one send."""
    # After a turn with one call a loop's connection sends up to 48 at once.
    await limiter.peek("k")
    hits = [each.hit(key) for key in keys for each in (limiter, *others)]
    return list(await asyncio.gather(*hits))


def test_hits_that_wait_together_are_one_increx_and_the_first_of_them_pass(
    server: IncrexServer,
) -> None:
    async def main() -> list[list[hotcount.Decision]]:
        async with aio.Redis(server.url, timeout=20) as store:
            limiter = aio.Limiter(store, "30/hour", name=fresh(), increx=True, **FIRST)
            return [await hits_at_once(limiter, ["k"] * 20) for _ in range(3)]

    first, second, third = asyncio.run(main())
    # The first 20 are a call of the script.
    assert [words[2:4] for words in server.hits] == [[b"BYINT", b"20"]] * 2
    assert [d.remaining for d in first] == list(range(29, 9, -1))
    assert [d.allowed for d in second] == [True] * 10 + [False] * 10
    assert [d.remaining for d in second] == [*range(9, -1, -1), *[0] * 10]
    assert not any(d.allowed for d in third)


def test_hits_of_other_keys_and_limits_are_not_counted_together(server: IncrexServer) -> None:
    async def main() -> list[hotcount.Decision]:
        async with aio.Redis(server.url, timeout=20) as store:
            few, many = (
                aio.Limiter(store, rate, name=fresh(), increx=True, **FIRST)
                for rate in ("3/hour", "9/hour")
            )
            await few.hit("k")
            return await hits_at_once(few, ["a", "b"] * 4, [many])

    decisions = asyncio.run(main())
    assert [sum(d.allowed for d in decisions[i::4]) for i in range(4)] == [3, 4, 3, 4]
    assert sorted((words[3], words[5]) for words in server.hits) == [
        *[(b"4", b"3")] * 2,
        *[(b"4", b"9")] * 2,
    ]


def test_threads_with_and_without_the_option_take_the_limit_and_no_more(
    server: IncrexServer, redis_server: RedisServer
) -> None:
    name, rate = fresh(), "120/hour"
    with hotcount.Redis(server.url, timeout=20) as store, redis_server.redis(timeout=20) as other:
        limiters = [make(store, name, rate), make(other, name, rate), make(store, name, rate)]
        limiters.append(make(other, name, rate, increx=False))

        def hits(number: int) -> int:
            return sum(limiters[number % 4].hit("k").allowed for _ in range(20))

        assert sum(together(hits, 16)) == 120


class Model:
    """A window that no clock ends, as `Window` of tests/support/limiter_models.py has it."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used, self.held = limit, 0, 0

    def hit(self, cost: int) -> tuple[bool, int]:
        allowed = self.used + cost + self.held <= self.limit
        self.used += cost if allowed else 0
        return allowed, max(self.limit - self.used - self.held, 0)


def play(rng: random.Random, limiter: hotcount.Limiter, model: Model) -> None:
    """One operation, whose answer must be the model's."""
    what = rng.choice(["hit"] * 6 + ["cost", "many", "peek", "most", "refund", "joint", "once"])
    if what in ("hit", "cost", "joint", "once"):
        cost = 1 if what == "hit" else rng.randint(1, 4)
        if what == "joint":
            decision = hotcount.hit_all([(limiter, "k", cost)])
        elif what == "once":
            decision = limiter.hit("k", cost, op_id=uuid.uuid4().hex)
        else:
            decision = limiter.hit("k", cost)
        assert (decision.allowed, decision.remaining) == model.hit(cost), what
    elif what == "many":
        costs = [rng.randint(1, 2) for _ in range(3)]
        for decision, cost in zip(limiter.hit_many(["k"] * 3, costs), costs, strict=True):
            assert (decision.allowed, decision.remaining) == model.hit(cost), what
    elif what == "peek":
        assert limiter.peek("k").remaining == model.limit - model.used
    elif what == "most":
        n = rng.randint(1, 4)
        taken = min(n, model.limit - model.used)
        assert limiter.at_most("k", n) == taken
        model.used += taken
    else:
        n = rng.randint(1, 6)
        model.used = max(model.used - n, 0)
        assert limiter.refund("k", n) == model.limit - model.used


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_random_calls_answer_as_the_model_whoever_counts(
    server: IncrexServer, redis_server: RedisServer, seed: int
) -> None:
    rng = random.Random(seed)
    with hotcount.Redis(server.url, timeout=20) as store, redis_server.redis(timeout=20) as other:
        for _ in range(5):
            name, rate = fresh(), f"{rng.randint(1, 12)}/hour"
            limiters = [make(store, name, rate), make(store, name, rate), make(other, name, rate)]
            if rng.random() < 0.5:
                limiters.append(make(other, name, rate, increx=False))
            model = Model(limiters[0].rate.limit)
            for _ in range(25):
                play(rng, rng.choice(limiters), model)
            # An unused window has no key, or one that is about to go.
            if model.used:
                assert 0 < other.execute("PTTL", state_key(name, rate)) <= 3_600_000
    assert server.hits


def test_a_block_and_a_reservation_stand_beside_what_increx_counted(
    server: IncrexServer, store: hotcount.Redis
) -> None:
    limiter = make(store, fresh())
    assert [limiter.hit("k").remaining for _ in range(3)] == [4, 3, 2]
    reservation = limiter.reserve("k", 1)
    assert [limiter.hit("k").allowed for _ in range(2)] == [True, False]
    reservation.commit(1)
    assert limiter.peek("k").remaining == 0
    assert limiter.hit("k").reason == "limited"
    limiter.block("k", 60)
    assert limiter.hit("k").reason == "blocked"
    limiter.reset("k")
    assert limiter.hit("k").remaining == 4


def test_a_window_ends_when_it_was_to_end(
    server: IncrexServer, store: hotcount.Redis, direct: hotcount.Redis
) -> None:
    name = fresh()
    limiter = make(store, name)
    limiter.hit("k")
    direct.execute("PEXPIRE", state_key(name), 9_000)
    hits = [limiter.hit("k") for _ in range(5)]
    limiter.refund("k", 2)
    hits += [limiter.hit("k", 2), limiter.hit("k")]
    assert all(0 < d.reset_after <= 9.001 for d in hits)
    assert hits[4].retry_after == hits[4].reset_after
    assert 0 < direct.execute("PTTL", state_key(name)) <= 9_000
    # A key that lost its expiry gets one with the next hit.
    for hit in (limiter.hit, limiter.peek, lambda key: limiter.hit(key, 2)):
        limiter.reset("k")
        limiter.hit("k")
        direct.execute("PERSIST", state_key(name))
        assert hit("k").reset_after <= HOUR
        if hit != limiter.peek:
            assert 0 < direct.execute("PTTL", state_key(name)) <= 3_600_000


def test_each_connection_is_asked_anew_and_the_count_stays(
    server: IncrexServer, store: hotcount.Redis
) -> None:
    limiter = make(store, fresh(), "9/hour")
    left = [limiter.hit("k").remaining for _ in range(2)]
    for dialect in (unknown, redis_8_8):
        server.dialect = dialect
        server.end_connections()
        store.ping()  # It only reads, so it is sent once more where its connection has ended.
        left += [limiter.hit("k").remaining for _ in range(3)]
    assert left == list(range(8, 0, -1))
    assert server.questions == 6
    assert len(server.hits) == 3


@pytest.mark.parametrize("dialect", [unknown, without_right])
def test_a_server_that_loses_increx_in_mid_connection_goes_on_by_the_script(
    server: IncrexServer, store: hotcount.Redis, dialect: Dialect
) -> None:
    limiter = make(store, fresh())
    left = [limiter.hit("k").remaining for _ in range(2)]
    server.dialect = dialect
    left += [limiter.hit("k").remaining for _ in range(3)]
    assert left == [4, 3, 2, 1, 0]
    assert len(server.hits) == 2, "it is tried once, and not again"


def test_a_window_that_the_script_keeps_as_text_goes_on_by_the_script(
    server: IncrexServer, store: hotcount.Redis, direct: hotcount.Redis
) -> None:
    name = fresh()
    limiter, without = make(store, name), make(direct, name, increx=False)
    limiter.hit("other")
    assert [each.hit("k").remaining for each in (without, limiter, limiter)] == [4, 3, 2]
    assert b" 3" in direct.execute("GET", state_key(name))
    assert limiter.hit("other").remaining == 3
    assert server.hits[-1][1].endswith(b":other"), "other keys go on by INCREX"


def test_a_charged_denial_is_not_lost_to_increx(
    server: IncrexServer, store: hotcount.Redis, direct: hotcount.Redis
) -> None:
    name = fresh()
    charging = hotcount.Limiter(direct, "5/hour", name=name, charge_denied=True, **FIRST)
    limiter = make(store, name)
    assert [limiter.hit("k").remaining for _ in range(4)] == [4, 3, 2, 1]
    assert not charging.hit("k", 4)  # 8 of 5 are used.
    assert not limiter.hit("k")
    assert limiter.refund("k", 2) == 0
    assert limiter.refund("k", 2) == 1


def test_a_key_of_another_type_is_a_wrong_type_error(
    server: IncrexServer, store: hotcount.Redis, direct: hotcount.Redis
) -> None:
    name = fresh()
    limiter = make(store, name)
    limiter.hit("other")
    direct.execute("RPUSH", state_key(name), "x")
    with pytest.raises(hotcount.WrongTypeError):
        limiter.hit("k")
    assert limiter.hit("other").remaining == 3


def answer_hits_with(*answers: bytes | None) -> Callable[[Words], bytes | None]:
    """Those of limiters' keys, in turn; None ends the connection. Then the server answers."""
    left = list(answers)

    def answer(words: Words) -> bytes | None:
        if words[0] != b"INCREX" or b"increx." in words[1] or not left:
            return None
        chosen = left.pop(0)
        if chosen is None:
            raise ConnectionError
        return chosen

    return answer


STRANGE = [b":5\r\n", b"*2\r\n:1\r\n$1\r\n1\r\n", b"*3\r\n:1\r\n:1\r\n:1\r\n", b"$-1\r\n"]
STRANGE += [b"+OK\r\n", b"*2\r\n:9\r\n:2\r\n", b"*0\r\n"]


@pytest.mark.parametrize("answer", [*STRANGE, None])
def test_an_answer_that_cannot_be_increx_ends_the_connection_with_the_outcome_unknown(
    server: IncrexServer, store: hotcount.Redis, answer: bytes | None
) -> None:
    limiter = make(store, fresh())
    limiter.hit("k")
    server.instead = answer_hits_with(answer)
    with pytest.raises(hotcount.OutcomeUnknownError):
        limiter.hit("k")
    # Nothing of it was counted: the server never ran it.
    assert [limiter.hit("k").remaining for _ in range(2)] == [3, 2]


@pytest.mark.parametrize("refusal", [b"-ERR no\r\n", b"-LOADING\r\n", b"-OOM no room\r\n"])
def test_a_refused_increx_took_nothing_and_goes_by_the_script(
    server: IncrexServer, store: hotcount.Redis, refusal: bytes
) -> None:
    limiter = make(store, fresh())
    limiter.hit("k")
    server.instead = answer_hits_with(refusal)
    assert [limiter.hit("k").remaining for _ in range(3)] == [3, 2, 1]


@pytest.mark.parametrize("answer", [b"-NOPERM no\r\n", None, b":-1\r\n", b":-2\r\n"])
def test_hits_whose_expiry_is_not_known_are_decided_all_the_same(
    server: IncrexServer, store: hotcount.Redis, answer: bytes | None
) -> None:
    limiter = make(store, fresh())
    limiter.hit("k")

    def instead(words: Words) -> bytes | None:
        if words[0] != b"PTTL" or b"increx." in words[1]:
            return None
        server.instead = lambda words: None
        if answer is None:
            raise ConnectionError
        return answer

    # Asks now: PTTL of the question must be answered before.
    assert limiter.hit("k").remaining == 3
    server.instead = instead
    decision = limiter.hit("k")
    assert (decision.allowed, decision.remaining) == (True, 2)
    assert decision.reset_after == (0.001 if answer == b":-2\r\n" else HOUR)
    assert limiter.hit("k").remaining == 1


def test_a_server_that_cannot_say_is_asked_later(
    server: IncrexServer, store: hotcount.Redis
) -> None:
    def loads(words: Words) -> bytes | None:
        return b"-LOADING\r\n" if words[0] == b"INCREX" else None

    limiter = make(store, fresh(), "1000000/hour")
    server.instead = loads
    assert limiter.hit("k").allowed
    server.instead = lambda words: None
    while not server.hits:
        assert limiter.hit("k").allowed


def test_options_that_increx_does_not_go_with_are_refused(redis_server: RedisServer) -> None:
    for bad, options in (
        ("fixed_window", {}),
        ("fixed_window", {"algorithm": "fixed_window"}),
        ("one rate", {**FIRST, "rate": "5/s; 9/minute"}),
        ("milliseconds", {**FIRST, "rate": hotcount.Rate(5, 1.0005, 5)}),
        ("charge_denied", {**FIRST, "charge_denied": True}),
    ):
        options = {"rate": "5/s", **options}
        with pytest.raises(hotcount.ConfigError, match=f"increx.*{bad}"):
            hotcount.Limiter(redis_server.url, increx=True, **options)
    for url in ("memory://", "sqlite:///:memory:"):
        with pytest.raises(hotcount.ConfigError, match=r"increx.*is for Redis"):
            hotcount.Limiter(url, "5/s", increx=True, **FIRST)
    with redis_server.redis() as store:
        limiter = make(store, fresh())
        with pytest.raises(hotcount.ConfigError, match=r"increx.*one rate"):
            limiter.hit("k", rate="5/s; 9/minute")
        assert limiter.hit("k", rate="7/s").remaining == 6
