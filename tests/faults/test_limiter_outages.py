"""A limiter's on_error: who decides while Redis is killed, paused or refuses."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import Redis, aio, hit_all

from tests.faults.proxy import FaultProxy
from tests.support.eventually import eventually
from tests.support.resp_server import RespServer, ScriptedServer
from tests.support.servers import RedisServer, free_port
from tests.support.together import in_child

pytestmark = pytest.mark.server
POLICIES: list[Any] = ["open", "closed", "local"]
# What five hits of "2/minute" come to.
ADMITTED = {"open": [True] * 5, "closed": [False] * 5, "local": [True, True] + [False] * 3}


@dataclass
class Fault:
    """Something that makes a Redis useless, and its end."""

    strike: Callable[[], object]
    mend: Callable[[], object]


def fault(name: str, server: RedisServer, direct: hotcount.Redis) -> Fault:
    def config(option: str, bad: str, good: str) -> Fault:
        return Fault(
            lambda: direct.execute("CONFIG", "SET", option, bad),
            lambda: direct.execute("CONFIG", "SET", option, good),
        )

    def no_clients() -> None:
        direct.execute("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "yes")
        direct.execute("CONFIG", "SET", "maxclients", "1")

    full = config("maxclients", "1", "1000")
    return {
        "paused": Fault(
            lambda: server.send_signal(signal.SIGSTOP), lambda: server.send_signal(signal.SIGCONT)
        ),
        "killed": Fault(server.kill, server.start),
        "demoted": Fault(
            lambda: direct.execute("REPLICAOF", "127.0.0.1", str(free_port())),
            lambda: direct.execute("REPLICAOF", "NO", "ONE"),
        ),
        "out of memory": config("maxmemory", "1", "0"),
        "without replicas": config("min-replicas-to-write", "1", "0"),
        "out of clients": Fault(no_clients, full.mend),
    }[name]


QUICK = {("killed", "open"), ("paused", "closed"), ("out of memory", "local")}
FAULTS = ["killed", "paused", "demoted", "out of memory", "without replicas", "out of clients"]


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Beside what the client logs of the server."""
    said = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    return [each for each in said if "limiters" in each]


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hotcount")


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        pytest.param(name, policy, marks=() if (name, policy) in QUICK else pytest.mark.long)
        for name in FAULTS
        for policy in POLICIES
    ],
)
def test_the_policy_answers_until_redis_does(
    name: str,
    policy: Any,
    own_redis: RedisServer,
    direct: hotcount.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    the_fault = fault(name, own_redis, direct)
    direct.ping()
    with own_redis.redis(timeout=0.3, prefix="own:") as store:
        limiter = hotcount.Limiter(store, "2/minute", on_error=policy)
        other = hotcount.Limiter(store, "2/minute", name="other", on_error=policy)
        assert limiter.hit("k").reason == "allowed"
        the_fault.strike()
        decisions = [limiter.hit("k") for _ in range(5)]
        assert [decision.reason for decision in decisions] == [policy] * 5
        assert [bool(decision) for decision in decisions] == ADMITTED[policy]
        # Another limiter of the store knows it too.
        assert other.hit("k").reason == policy
        the_fault.mend()
        eventually(lambda: limiter.hit("back").reason in ("allowed", "limited"))
    away, back = messages(caplog)
    assert away.startswith("WARNING redis ")
    assert f"is away: on_error='{policy}'" in away
    assert back.startswith("INFO redis ")
    assert "answers limiters again" in back


@pytest.mark.parametrize(
    "name",
    ["paused", *(pytest.param(one, marks=pytest.mark.long) for one in FAULTS if one != "paused")],
)
def test_a_loop_keeps_its_pace_meanwhile(name: str, own_redis: RedisServer, direct: Redis) -> None:
    the_fault = fault(name, own_redis, direct)
    direct.ping()

    async def program() -> tuple[set[str], float]:
        store = aio.Redis(own_redis.url, timeout=0.5)
        limiter = aio.Limiter(store, "2/minute", on_error="local")
        await limiter.hit("k")
        the_fault.strike()
        gaps = []

        async def heartbeat() -> None:
            last = time.perf_counter()
            while True:
                await asyncio.sleep(0.001)
                now = time.perf_counter()
                gaps.append(now - last)
                last = now

        beating = asyncio.create_task(heartbeat())
        first = await asyncio.gather(*(limiter.hit(f"k{i}") for i in range(64)))
        later = [await limiter.hit("k") for _ in range(3)]
        await asyncio.to_thread(the_fault.mend)
        async with asyncio.timeout(20):
            while (await limiter.hit("back")).reason == "local":
                await asyncio.sleep(0.001)
        beating.cancel()
        await store.aclose()
        return {decision.reason for decision in first + later}, max(gaps, default=0)

    reasons, worst = asyncio.run(program())
    print(f"{name}: the worst gap of a heartbeat of 1 ms is {worst * 1000:.1f} ms")
    assert reasons == {"local"}
    # It never waited for Redis, which took 500 ms to be given up.
    assert worst < 0.4


@pytest.mark.parametrize("policy", POLICIES)
def test_every_way_to_ask_is_answered(policy: Any, own_redis: RedisServer) -> None:
    store = own_redis.redis(timeout=0.3)
    limiter = hotcount.Limiter(store, "4/minute; 2/second", on_error=policy)
    own_redis.kill()
    batch = limiter.hit_many(["a", "a", "a", "b"])
    admitted = {"open": [True] * 4, "closed": [False] * 4, "local": [True, True, False, True]}
    assert [one.reason for one in batch] == [policy] * 4
    assert list(batch.allowed) == admitted[policy]
    assert limiter.at_most("c", 3) == {"open": 2, "closed": 0, "local": 2}[policy]
    for ask in (limiter.test, limiter.peek):
        assert (ask("d").reason, bool(ask("d"))) == (policy, policy != "closed")
    for hit in (limiter.hit, limiter.test):
        denied = hit("d", 3)
        assert (denied.reason, denied.retry_after) == ("cost_above_limit", None)
        assert denied.violated == ("2/second",)
    denied = limiter.hit("a")
    if policy == "closed":
        assert denied.violated == ()
        assert denied.retry_after is not None
        assert 0 < denied.retry_after <= 1
        assert denied.headers()["Retry-After"] == "1"
    # No answer of ours forgets what Redis keeps.
    with pytest.raises(hotcount.UnavailableError):
        limiter.reset("a")

    async def program() -> None:
        # The store is the same, and its outage.
        awaited = aio.Limiter(store, "4/minute; 2/second", name="aio", on_error=policy)
        later = await awaited.hit_many(["a", "a", "a", "b"])
        assert list(later.allowed) == admitted[policy]
        assert await awaited.at_most("c", 3) == {"open": 2, "closed": 0, "local": 2}[policy]
        assert (await awaited.peek("d")).reason == policy

    asyncio.run(program())


@pytest.mark.parametrize("policy", POLICIES)
def test_hits_that_are_taken_together_are_answered(
    policy: Any, own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = own_redis.redis(timeout=0.3)
    wide = hotcount.Limiter(store, "9/300 days", name="wide", on_error=policy)
    tight = hotcount.Limiter(store, "2/300 days", name="tight", on_error=policy)
    memory = hotcount.Limiter(hotcount.Memory(), "2/300 days", name="memory")
    pair = [(wide, "k", 1), (tight, "k", 1)]
    assert hit_all(pair).reason == "allowed"
    own_redis.kill()
    decisions = [hit_all(pair) for _ in range(3)]
    assert [decision.reason for decision in decisions] == [policy] * 3
    admitted = {"open": [True] * 3, "closed": [False] * 3, "local": [True, True, False]}
    assert [bool(decision) for decision in decisions] == admitted[policy]
    if policy == "local":
        # All or none, here too; what began the outage is counted like the others.
        assert decisions[2].violated == ("tight",)
        assert wide.peek("k").remaining == 7
    # Nothing was taken from Redis that would have to go back.
    assert not hit_all([*pair, (memory, "k", 3)])
    assert memory.peek("k").remaining == 2

    async def program() -> None:
        awaited = [
            (aio.Limiter(store, "2/300 days", name=f"aio{i}", on_error=policy), "k", 1)
            for i in range(2)
        ]
        assert [bool(await aio.hit_all(awaited)) for _ in range(3)] == admitted[policy]

    asyncio.run(program())
    own_redis.start()
    eventually(lambda: hit_all([(tight, "back", 2)]).reason in ("allowed", "limited"))
    away, back = messages(caplog)
    assert away.startswith("WARNING redis ")
    assert back.startswith("INFO redis ")


def test_policies_that_differ_answer_together_each_for_itself(own_redis: RedisServer) -> None:
    store = own_redis.redis(timeout=0.3)

    def limiter(policy: Any, rate: str = "2/300 days", **options: Any) -> hotcount.Limiter:
        return hotcount.Limiter(store, rate, name=policy, on_error=policy, **options)

    own_redis.kill()
    local, free = limiter("local"), limiter("open")
    assert hit_all([(local, "k", 2), (free, "k", 2)])
    refused = hit_all([(free, "k", 2), (local, "k", 1)])
    assert (refused.reason, refused.violated) == ("local", ("local",))
    # What one refuses takes nothing of another.
    closed = hit_all([(local, "other", 1), (limiter("closed"), "other", 1)])
    assert (closed.allowed, closed.reason) == (False, "closed")
    assert local.peek("other").remaining == 2
    assert hit_all([(local, "other", 1), (limiter("closed", shadow=True), "other", 1)])
    above = hit_all([(local, "other", 1), (free, "other", 3)])
    assert (above.reason, above.retry_after) == ("cost_above_limit", None)
    assert local.peek("other").remaining == 1
    # One that wants the error gets it.
    with pytest.raises(hotcount.UnavailableError):
        hit_all([(local, "other", 1), (hotcount.Limiter(store, "2/300 days"), "other", 1)])
    assert local.peek("other").remaining == 1


def test_of_one_key_the_policy_that_admits_less_decides(own_redis: RedisServer) -> None:
    store = own_redis.redis(timeout=0.3)
    opens, closes = (
        hotcount.Limiter(store, "9/day", on_error=policy) for policy in ("open", "closed")
    )
    raises = hotcount.Limiter(store, "9/day")
    assert hit_all([(opens, "k"), (raises, "k"), (closes, "k")])
    own_redis.kill()
    for order in ((opens, closes), (closes, opens)):
        assert hit_all([(limiter, "k") for limiter in order]).reason == "closed"
    for order in ((opens, raises), (raises, opens)):
        with pytest.raises((hotcount.UnavailableError, hotcount.OutcomeUnknownError)):
            hit_all([(limiter, "k") for limiter in order])


def test_a_refusal_of_another_store_gives_back(own_redis: RedisServer) -> None:
    store = own_redis.redis(timeout=0.3)
    memory = hotcount.Memory()
    own_redis.kill()
    local = hotcount.Limiter(store, "10/300 days", name="local", on_error="local")
    free = hotcount.Limiter(store, "10/300 days", name="free", on_error="open")
    tight = hotcount.Limiter(memory, "2/300 days", name="tight")
    hits: list[Any] = [(local, "k", 3), (local, "k", 4, "9/300 days"), (free, "k", 3)]
    assert hit_all([*hits, (tight, "k", 2)])
    assert hit_all([*hits, (tight, "k", 1)]).violated == ("tight",)
    assert local.peek("k").remaining == 7
    assert local.peek("k", rate="9/300 days").remaining == 5
    with pytest.raises(hotcount.ConfigError, match="key"):
        hit_all([*hits, (tight, "")])
    assert local.peek("k").remaining == 7

    async def program() -> None:
        here = aio.Limiter(store, "10/300 days", name="local", on_error="local")
        there = aio.Limiter(memory, "2/300 days", name="tight")
        assert not await aio.hit_all([(here, "k", 3), (there, "k", 1)])
        assert (await here.peek("k")).remaining == 7

    asyncio.run(program())


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_late_reserve_is_let_go(own_redis: RedisServer, direct: Redis, is_awaited: bool) -> None:
    looks = hotcount.Limiter(direct, "10/300 days")
    with (
        FaultProxy(own_redis.socket) as proxy,
        hotcount.Redis(proxy.url, timeout=0.3, silence_limit=20) as store,
    ):
        limiter = hotcount.Limiter(store, "10/300 days", on_error="open")
        eventually(lambda: limiter.hit("other").reason == "allowed")

        async def reserve() -> hotcount.Decision:
            awaited = aio.Limiter(store, "10/300 days", on_error="open")
            await awaited.hit("other")
            proxy.hold()
            return (await awaited.reserve("k", 4, lease=3600)).decision

        if is_awaited:
            decision = asyncio.run(reserve())
        else:
            proxy.hold()
            decision = limiter.reserve("k", 4, lease=3600).decision
        assert decision.reason == "open"
        proxy.heal()
        eventually(lambda: looks.peek("k").remaining == 10)


def test_without_a_policy_the_outage_is_an_error(own_redis: RedisServer) -> None:
    store = own_redis.redis(timeout=0.3)
    tolerant = hotcount.Limiter(store, "2/minute", on_error="open")
    own_redis.kill()
    assert tolerant.hit("k").reason == "open"
    with pytest.raises(hotcount.UnavailableError):
        hotcount.Limiter(store, "2/minute").hit("k")


@pytest.mark.parametrize("word", ["LOADING", "MASTERDOWN", "MISCONF"])
def test_a_server_that_is_not_ready_is_away(word: str, tmp_path: Path) -> None:
    answers = {b"EVALSHA": f"-{word} not now\r\n".encode()}
    server = ScriptedServer(tmp_path, lambda words: answers.get(words[0], b"-ERR unknown\r\n"))
    with server, hotcount.Redis(server.url, timeout=0.5) as store:
        assert hotcount.Limiter(store, "2/minute", on_error="open").hit("k").reason == "open"


def test_what_is_wrong_with_the_call_is_no_outage(
    own_redis: RedisServer, direct: hotcount.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    direct.execute("SET", "limit:default:gcra:2/minute:text", "no state")
    direct.execute("ACL", "SETUSER", "poor", "on", ">word", "~*", "+ping", "+hello", "+client")
    store = own_redis.redis(timeout=1)
    limiter = hotcount.Limiter(store, "2/minute", on_error="open")
    with pytest.raises(hotcount.WrongTypeError):
        limiter.hit("text")
    with pytest.raises(hotcount.ConfigError):
        limiter.hit("k", 0)
    with pytest.raises(TypeError):
        limiter.hit(7)  # type: ignore[arg-type]
    for password, error in (("word", hotcount.PermissionDeniedError), ("bad", hotcount.AuthError)):
        with (
            hotcount.Redis(own_redis.login("poor", password), timeout=1) as poor,
            pytest.raises(error),
        ):
            hotcount.Limiter(poor, "2/minute", on_error="open").hit("k")
    store.close()
    with pytest.raises(hotcount.ClosedError):
        limiter.hit("k")
    assert messages(caplog) == []


def test_a_hit_during_an_outage_sends_nothing_but_a_probe_a_second() -> None:
    seen: list[bytes] = []

    def respond(_: int, client: Any, words: list[bytes]) -> None:
        seen.append(words[0])  # And no answer.

    with RespServer(respond) as server, hotcount.Redis(server.url, timeout=0.2) as store:
        limiter = hotcount.Limiter(store, "2/minute", on_error="closed")
        began = time.monotonic()
        assert limiter.hit("k").reason == "closed"
        for _ in range(2000):
            limiter.hit("k")
        eventually(lambda: b"SETRANGE" in seen)
        seconds = time.monotonic() - began
    # A process that is late itself asks once more.
    assert [word for word in seen if word != b"SETRANGE"] in ([b"EVALSHA"], [b"EVALSHA"] * 2)
    assert seen.count(b"SETRANGE") <= seconds + 1


def test_a_probe_leaves_the_key_as_it_is(own_redis: RedisServer, direct: hotcount.Redis) -> None:
    with own_redis.redis(timeout=0.3) as store:
        limiter = hotcount.Limiter(store, "2/minute", on_error="closed")
        limiter.hit("k")
        key = "limit:default:gcra:2/minute:k"
        before = direct.execute("DUMP", key)
        direct.execute("CONFIG", "SET", "maxmemory", "1")
        assert limiter.hit("k").reason == limiter.hit("absent").reason == "closed"
        direct.execute("CONFIG", "SET", "maxmemory", "0")
        eventually(lambda: limiter.test("absent").reason == "allowed")
        assert direct.execute("DUMP", key) == before
        assert direct.execute("KEYS", "*") == [key.encode()]


def test_a_child_forked_in_an_outage_answers_and_comes_back(own_redis: RedisServer) -> None:
    store = own_redis.redis(timeout=0.3)
    limiter = hotcount.Limiter(store, "2/minute", on_error="local")
    own_redis.kill()
    assert limiter.hit("k").reason == "local"

    def child() -> list[bool]:
        admitted = [bool(limiter.hit("k")) for _ in range(2)]
        own_redis.start()
        eventually(lambda: limiter.hit("back").reason == "allowed")
        own_redis.stop()
        return admitted

    # Of two, the parent has taken one; the child goes on from there with a count of its own.
    assert in_child(child) == [True, False]
    assert [bool(limiter.hit("k")) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_answers_a_reserve_and_holds_nothing(own_redis: RedisServer, policy: Any) -> None:
    store = own_redis.redis(timeout=5)
    limiter = hotcount.Limiter(store, "2/300 days", on_error=policy)
    held = limiter.reserve("k", 1)
    own_redis.stop()
    answered = [limiter.reserve("k", 1) for _ in range(3)]
    assert [bool(one) for one in answered] == ADMITTED[policy][:3]
    assert {one.decision.reason for one in answered} == {policy}
    if answered[0]:
        assert answered[0].commit(2) is answered[0].decision
        answered[1].cancel()

    async def main() -> str:
        return (
            await aio.Limiter(store, "9/300 days", on_error=policy).reserve("k", 1)
        ).decision.reason

    assert asyncio.run(main()) == policy
    # No policy can settle what the store holds.
    with pytest.raises((hotcount.UnavailableError, hotcount.OutcomeUnknownError)):
        held.commit()


def test_a_shadow_limiter_refuses_nobody_during_an_outage(own_redis: RedisServer) -> None:
    store = own_redis.redis(timeout=0.3)
    limiter = hotcount.Limiter(store, "2/minute", on_error="closed", shadow=True)
    own_redis.kill()
    decision = limiter.hit("k")
    assert decision.allowed
    # No limit has refused it.
    assert decision.reason == "closed"


def test_in_memory_nothing_is_ever_away() -> None:
    with hotcount.Memory(max_keys=1, when_full="refuse") as store:
        limiter = hotcount.Limiter(store, "2/minute", on_error="open")
        assert limiter.hit("a").reason == "allowed"
        with pytest.raises(hotcount.CapacityError):
            limiter.hit("b")


@pytest.mark.parametrize("options", [{"on_error": "open"}, {"deny_cache": 5}])
def test_a_database_takes_no_policy(options: dict[str, Any]) -> None:
    with pytest.raises(hotcount.ConfigError, match="is for Redis"):
        hotcount.Limiter("sqlite:///:memory:", "2/minute", **options)


def test_an_unknown_policy_is_refused() -> None:
    bad: Any = "ignore"
    with pytest.raises(hotcount.ConfigError, match="on_error is 'ignore'"):
        hotcount.Limiter("memory://", "2/minute", on_error=bad)
