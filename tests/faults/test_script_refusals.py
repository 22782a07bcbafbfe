"""A script that a server refuses in its middle leaves the data as it was.

Made from the scripts themselves: every one is run in the situations below, once for each command
that it calls with that command denied, and with the other refusals that can meet it half way.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import hotcount
import pytest

from tests.faults.script_situations import BAD_DATA, BY_NAME, HEAL_FIRST, SITUATIONS
from tests.faults.situation import SCRIPTS, SOON, Situation, cached
from tests.support.scripts import script_text
from tests.support.servers import RedisServer, free_port

pytestmark = pytest.mark.server


def text_of(script: str) -> str:
    return script_text(SCRIPTS[script])


def commands_of(script: str) -> list[str]:
    return sorted(set(re.findall(r"\b(?:call|pcall)\(\s*'([A-Z]+)'", text_of(script))))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    try:
        yield server.start()
    finally:
        server.stop()


class Bench:
    """The server's administrator, and a user whose rights change."""

    def __init__(self, server: RedisServer) -> None:
        self.admin = server.redis(timeout=20)
        self.admin.execute("ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "+@all")
        self.user = hotcount.Redis(server.login("u", "p"), timeout=20)

    def prepare(self, situation: Situation) -> None:
        self.admin.execute("FLUSHALL")
        for command in situation.before:
            self.admin.execute(*command)

    def snapshot(self) -> dict[bytes, tuple[object, ...]]:
        """Every key's value, and whether it expires; without keys that expire within a second,
        because whether they are still there is a matter of time."""
        found: dict[bytes, tuple[object, ...]] = {}
        for key in self.admin.execute("KEYS", "*"):
            value, left = self.value(key), self.admin.execute("PTTL", key)
            if left == -1 or left > 1000:
                found[key] = (value, left == -1)
        return found

    def value(self, key: bytes) -> object:
        if self.admin.execute("TYPE", key) == b"stream":
            return self.stream(key)
        # A hash may be dumped in another order every time.
        if self.admin.execute("TYPE", key) == b"hash":
            words = self.admin.execute("HGETALL", key)
            return frozenset(zip(words[::2], words[1::2], strict=True))
        return self.admin.execute("DUMP", key)

    def stream(self, key: bytes) -> object:
        """All but when exactly its consumers were last seen."""

        def about(words: list[Any]) -> dict[bytes, Any]:
            return dict(zip(words[::2], words[1::2], strict=True))

        groups = []
        for group in self.admin.execute("XINFO", "GROUPS", key):
            name = about(group)[b"name"]
            pending = self.admin.execute("XPENDING", key, name, "-", "+", 100)
            consumers = self.admin.execute("XINFO", "CONSUMERS", key, name)
            names = sorted(str(about(each)[b"name"]) for each in consumers)
            # Entries that a consumer has had for more than 10 s are given back.
            had = [(entry, owner, idle > 10_000) for entry, owner, idle, _ in pending]
            groups.append((name, had, names))
        last = about(self.admin.execute("XINFO", "STREAM", key))[b"last-generated-id"]
        return repr((last, groups, self.admin.execute("XRANGE", key, "-", "+")))

    def run(self, situation: Situation, timeout: float | None = None) -> list[Exception]:
        """The errors, of the call or of its elements."""
        seconds, micro = self.admin.execute("TIME")
        now = str(int(seconds) * 1000 + int(micro) // 1000)
        arguments = [now if word == "now" else word for word in situation.arguments]
        keys = situation.keys
        try:
            reply = self.user.execute(
                "EVAL", text_of(situation.script), len(keys), *keys, *arguments, timeout=timeout
            )
        except hotcount.HotcountError as error:
            return [error]
        elements = reply if isinstance(reply, list) else []
        return [each for each in elements if isinstance(each, Exception)]


@pytest.fixture
def bench(server: RedisServer) -> Iterator[Bench]:
    bench = Bench(server)
    yield bench
    bench.admin.execute("ACL", "DELUSER", "u")
    bench.user.close()
    bench.admin.close()


def assert_nothing_happened(
    before: dict[bytes, tuple[object, ...]], after: dict[bytes, tuple[object, ...]], what: str
) -> None:
    for key in before.keys() | after.keys():
        was, stands = before.get(key), after.get(key)
        # What has lost its end may be given one: a refusal leaves no harm there.
        healed = was is not None and stands == (was[0], False) and was[1]
        assert stands == was or healed, f"{what}: {key!r} was {was} and is {stands}"


def test_every_script_has_its_situations_and_writes_in_one_of_them(bench: Bench) -> None:
    names = SCRIPTS.keys()
    assert {situation.script for situation in SITUATIONS} == names
    wrote = set()
    for situation in SITUATIONS:
        bench.prepare(situation)
        before = bench.snapshot()
        bench.run(situation)
        if bench.snapshot() != before:
            wrote.add(situation.script)
    assert wrote == names - {"time", "votes_read", "votes_stream_state"}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_user_who_may_not_run_a_command_changes_nothing(bench: Bench, name: str) -> None:
    situation = BY_NAME[name]
    bench.prepare(situation)
    bench.run(situation)
    done = bench.snapshot()
    for command in commands_of(situation.script):
        bench.prepare(situation)
        before = bench.snapshot()
        bench.admin.execute("ACL", "SETUSER", "u", "+@all", f"-{command}")
        errors = bench.run(situation)
        after = bench.snapshot()
        bench.admin.execute("ACL", "SETUSER", "u", "+@all")
        if errors:
            assert name in BAD_DATA or all(is_denial(error) for error in errors), errors
            assert_nothing_happened(before, after, f"without {command}")
        else:
            # It went without the command, or said that there was nothing to do.
            assert keys_and_ends(after) == keys_and_ends(done) or after == before, command


def is_denial(error: Exception) -> bool:
    """As a server says it of a script's command, which is not as it says it of a caller's."""
    return "NOPERM" in str(error) or "can't run this command" in str(error)


def keys_and_ends(snapshot: dict[bytes, tuple[object, ...]]) -> dict[bytes, object]:
    return {key: stands[1] for key, stands in snapshot.items()}


def test_each_command_of_a_script_is_denied_somewhere(bench: Bench) -> None:
    """Else the situations do not reach it, and the test above says nothing of it."""
    met: set[tuple[str, str]] = set()
    for situation in SITUATIONS:
        for command in commands_of(situation.script):
            bench.prepare(situation)
            bench.admin.execute("ACL", "SETUSER", "u", "+@all", f"-{command}")
            if bench.run(situation):
                met.add((situation.script, command))
            bench.admin.execute("ACL", "SETUSER", "u", "+@all")
    scripts = {situation.script for situation in SITUATIONS}
    calls = {(script, command) for script in scripts for command in commands_of(script)}
    assert calls == met


@pytest.mark.parametrize("name", BY_NAME)
def test_a_key_that_is_denied_or_of_another_type_changes_nothing(bench: Bench, name: str) -> None:
    situation = BY_NAME[name]
    for key in situation.keys:
        bench.prepare(situation)
        before = bench.snapshot()
        others = [f"~{other}" for other in situation.keys if other != key]
        bench.admin.execute("ACL", "SETUSER", "u", "resetkeys", *others)
        errors = bench.run(situation)
        bench.admin.execute("ACL", "SETUSER", "u", "~*")
        assert errors, f"{key} is denied"
        assert_nothing_happened(before, bench.snapshot(), f"without {key}")

        for wrong in (["SET", key, "word"], ["RPUSH", key, "word"]):
            bench.prepare(situation)
            bench.admin.execute("DEL", key)
            bench.admin.execute(*wrong)
            bench.admin.execute("PEXPIRE", key, SOON)
            before = bench.snapshot()
            if bench.run(situation):
                assert_nothing_happened(before, bench.snapshot(), f"{key} of another type")


@pytest.mark.parametrize("name", BY_NAME)
def test_a_server_without_memory_changes_nothing_or_all(bench: Bench, name: str) -> None:
    situation = BY_NAME[name]
    bench.prepare(situation)
    before = bench.snapshot()
    bench.admin.execute("CONFIG", "SET", "maxmemory", 1)
    try:
        errors = bench.run(situation)
    finally:
        bench.admin.execute("CONFIG", "SET", "maxmemory", 0)
    after = bench.snapshot()
    if errors:
        assert_nothing_happened(before, after, "without memory")
    else:
        assert set(after) <= set(before) or name in HEAL_FIRST, "a key was made"


@pytest.mark.parametrize("setting", ["replica-read-only", "min-replicas-to-write"])
def test_a_server_that_takes_no_writes_changes_nothing(bench: Bench, setting: str) -> None:
    for situation in SITUATIONS:
        bench.prepare(situation)
        before = bench.snapshot()
        if setting == "min-replicas-to-write":
            bench.admin.execute("CONFIG", "SET", setting, 1)
        else:
            bench.admin.execute("REPLICAOF", "127.0.0.1", free_port())
        try:
            # A replica is asked again until the deadline, since its name may move.
            bench.run(situation, timeout=0.05)
        finally:
            bench.admin.execute("CONFIG", "SET", "min-replicas-to-write", 0)
            bench.admin.execute("REPLICAOF", "NO", "ONE")
        assert_nothing_happened(before, bench.snapshot(), situation.name)


def test_a_batch_says_of_each_element_what_became_of_it(bench: Bench) -> None:
    keys, arguments = ["h0", "h1", "h2"], ["1", "3"] * 3
    for script in ("votes_mark", "votes_remove"):
        bench.admin.execute("FLUSHALL")
        for key in keys:
            saved = "3" if script == "votes_remove" else "1"
            bench.admin.execute(*cached(key, saved_version=saved))
        bench.admin.execute("DEL", "h1")
        bench.admin.execute("SET", "h1", "word")
        reply = bench.user.execute("EVAL", text_of(script), 3, *keys, *arguments)
        assert [isinstance(each, Exception) for each in reply] == [False, True, False]
        assert [reply[0], reply[2]] == [1, 1]


# -- what the callers of the library are told -------------------------------

CALLS: dict[str, Callable[[hotcount.Redis], object]] = {
    "add with a ttl": lambda redis: hotcount.Counter(redis, ttl=60).add("k", 2),
    "add_many with a ttl": lambda redis: hotcount.Counter(redis, ttl=60).add_many(["k", "new"], 2),
    "add with an op_id": lambda redis: hotcount.Counter(redis).add("k", 2, op_id="id"),
    "try_add": lambda redis: hotcount.Counter(redis, ttl=60).try_add("k", 2, max=9),
    "reset": lambda redis: hotcount.Counter(redis).reset("k"),
    "period": lambda redis: hotcount.PeriodCounter(redis, period="day").add("k", 2),
    "gcra": lambda redis: hotcount.Limiter(redis, "5/hour").hit_many(["a", "b"]),
    "fixed_window": lambda redis: hotcount.Limiter(
        redis, "5/hour", algorithm="fixed_window"
    ).hit_many(["a", "b"]),
    "sliding_window": lambda redis: hotcount.Limiter(
        redis, "5/hour", algorithm="sliding_window"
    ).hit_many(["a", "b"]),
    "sliding_log": lambda redis: hotcount.Limiter(
        redis, "5/hour", algorithm="sliding_log"
    ).hit_many(["a", "b"]),
    "create": lambda redis: hotcount.LiveSets(redis).create("z", 60, {"x": 1}),
    "upsert": lambda redis: hotcount.LiveSets(redis).upsert_many([("z", "a", 5), ("z2", "a", 5)]),
    "upsert with a version": lambda redis: hotcount.LiveSets(redis).upsert_many(
        [("z", "a", 5, 4), ("z2", "a", 5, 4)]
    ),
    "upsert into an emptied set": lambda redis: hotcount.LiveSets(redis).upsert("empty", "a", 5),
    "remove": lambda redis: hotcount.LiveSets(redis).remove("z", "a", version=9),
}
# What ends a batch's keys, element by element.
NAMES = {
    "add_many with a ttl": [b"count:k", b"count:new"],
    "gcra": [b":a", b":b"],
    "fixed_window": [b":a", b":b"],
    "sliding_window": [b":a", b":b"],
    "sliding_log": [b":a", b":b"],
    "upsert": [b"z", b"z2"],
    "upsert with a version": [b"z", b"z2"],
}
WRITES = ["SET", "INCRBY", "PEXPIRE", "PEXPIREAT", "HSET", "RPUSH", "ZADD", "ZREM", "DEL"]
READS = ["GET", "HGET", "HLEN", "PTTL", "TYPE", "ZCARD", "EXISTS", "LLEN"]


@pytest.mark.parametrize("denied", WRITES + READS)
@pytest.mark.parametrize("name", CALLS)
def test_a_caller_is_told_of_each_refused_element(bench: Bench, name: str, denied: str) -> None:
    bench.admin.execute("FLUSHALL")
    hotcount.Counter(bench.admin, ttl=60).add("k", 3)
    sets = hotcount.LiveSets(bench.admin)
    for key in ("z", "z2"):
        sets.create(key, 60, {"a": 1, "b": 2})
    sets.upsert("z", "a", 1, version=3)
    sets.create("empty", 60, {"a": 1})
    sets.remove("empty", "a")
    before = bench.snapshot()
    bench.admin.execute("ACL", "SETUSER", "u", "+@all", f"-{denied}")
    errors: list[Exception] = []
    names = NAMES.get(name, [b""])
    try:
        CALLS[name](bench.user)
    except hotcount.BatchError as error:
        errors = list(error.errors.values())
        # One element may do without the command that another needs.
        names = [names[index] for index in error.errors]
    except hotcount.HotcountError as error:
        errors = [error]
    bench.admin.execute("ACL", "SETUSER", "u", "+@all")
    if errors:
        assert {type(error) for error in errors} == {hotcount.PermissionDeniedError}
        after = bench.snapshot()

        def concerned(key: bytes) -> bool:
            return any(key.endswith(name) or key.startswith(b"{%b}" % name) for name in names)

        assert_nothing_happened(
            {key: before[key] for key in before if concerned(key)},
            {key: after[key] for key in after if concerned(key)},
            denied,
        )
