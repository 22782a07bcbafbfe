"""Upserts of many threads and processes beside rebuilds that die, expire and are evicted.

The source of the data is a hash in another server. Writers write there first and then to the set;
builders read it once they have the lease. Whenever everybody is at rest and the set is there, it
has what the source has.
"""

import json
import random
import subprocess
import sys
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator

import hotcount
import pytest

from tests.races.test_rebuild_model import SEED
from tests.support.eventually import eventually
from tests.support.rebuild_storm import VERSIONED
from tests.support.servers import RedisServer

IMMORTAL = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
    if redis.call('PTTL', key) == -1 then found[#found + 1] = key end
end
return found
"""
COMPANION = "{k}:versions.1"


class Storm:
    def __init__(self, server: RedisServer, source: RedisServer, threads: int) -> None:
        self.urls = (server.url, source.url)
        self.redis = server.redis(timeout=20)
        self.source = source.redis(timeout=20)
        self.threads = threads
        self.versions: dict[bytes, int] = {}
        self.published = self.kills = self.compared = 0
        self.ends: Tally[str] = Tally()
        self.drawn = random.Random(SEED)

    def start(self, role: str, index: int = 0) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.support.rebuild_storm", role, *self.urls]
        return subprocess.Popen(
            [*command, str(self.threads), str(index)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def look(self) -> None:
        """No key without a TTL, no version below one that was seen."""
        assert self.redis.execute("EVAL", IMMORTAL, 0) == []
        words = self.redis.execute("HGETALL", COMPANION)
        for member, text in zip(words[::2], words[1::2], strict=True):
            if member.startswith(VERSIONED.encode()):
                version = int(text.rstrip(b"~!"))
                assert version >= self.versions.get(member, 0), member
                self.versions[member] = version

    def evict(self) -> None:
        self.redis.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
        self.redis.execute("CONFIG", "SET", "maxmemory", 1)
        self.redis.execute("CONFIG", "SET", "maxmemory", 0)
        self.versions.clear()  # They may be gone, with all that knew of them.

    def kill(self, builder: subprocess.Popen[str]) -> subprocess.Popen[str]:
        builder.kill()
        self.kills += 1
        self.note(builder)
        return self.start("builder")

    def note(self, builder: subprocess.Popen[str]) -> None:
        said = builder.communicate()[0]
        self.published += said.split().count("published")

    def rage(self, processes: int, seconds: float) -> None:
        writers = [self.start("writer", index) for index in range(processes)]
        builders = [self.start("builder"), self.start("builder")]
        acts: list[Callable[[], object]] = [
            lambda: self.redis.execute("SCRIPT", "FLUSH"),
            lambda: self.redis.execute("DEL", "k"),
            lambda: self.redis.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
            lambda: builders.append(self.kill(builders.pop(0))),
            self.evict,
        ]
        self.drawn.shuffle(acts)
        until, turn = time.monotonic() + seconds, 0
        while time.monotonic() < until or turn < len(acts):
            quiet = time.monotonic() + self.drawn.uniform(0.05, 0.3)
            while time.monotonic() < quiet:
                self.look()
            acts[turn % len(acts)]()
            turn += 1
        for writer in writers:
            self.ends.update(json.loads(writer.communicate("")[0]))
        for builder in builders:
            self.note(builder)
        assert all(process.returncode == 0 for process in (*writers, *builders))

    def expected(self) -> dict[bytes, float]:
        words = self.source.execute("HGETALL", "source")
        return {member: float(value) for member, value in zip(words[::2], words[1::2], strict=True)}


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("source"))
    try:
        yield server.start()
    finally:
        server.stop()


SMALL = pytest.param(8, 2, 1, 2, id="small")
LARGE = pytest.param(64, 4, 6, 10, id="large", marks=pytest.mark.long)


@pytest.mark.parametrize(("threads", "processes", "rounds", "seconds"), [SMALL, LARGE])
def test_nothing_is_lost_in_a_storm(
    own_redis: RedisServer,
    source: RedisServer,
    threads: int,
    processes: int,
    rounds: int,
    seconds: float,
) -> None:
    storm = Storm(own_redis, source, threads)
    for _ in range(rounds):
        storm.rage(processes, seconds)
        storm.look()
        # Absent: an expiry, a DEL or an eviction came last.
        found = dict(hotcount.LiveSets(storm.redis, member_type=bytes).range("k", 0, -1))
        if storm.redis.execute("EXISTS", "k"):
            assert found == storm.expected()
            storm.compared += 1
        eventually(lambda: storm.redis.execute("EXISTS", f"{COMPANION}:next") == 0)
    print(storm.published, storm.kills, storm.compared, storm.ends)
    assert storm.published > 0
    assert storm.kills > 0
    assert storm.compared > 0 or rounds == 1
