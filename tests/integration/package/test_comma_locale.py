"""A process whose locale writes 1,5: numbers in commands, replies and options stay as they are."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.commands import output_of
from tests.support.fired import fired
from tests.support.programs import captured
from tests.support.servers import RedisServer

LOCALE = "de_DE.UTF-8"

# Runs in a process of its own: a locale is the process's, and threads read it without a lock.
BEGIN = f"""
import json, locale, sys
locale.setlocale(locale.LC_ALL, {LOCALE!r})
assert locale.localeconv()["decimal_point"] == ","
import hotcount
"""


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment that has the locale: machines have those only that their owner chose."""
    program = shutil.which("localedef")
    assert program is not None, "localedef is not installed; run scripts/setup"
    folder = tmp_path_factory.mktemp("locales")
    made = captured([program, "-i", "de_DE", "-f", "UTF-8", str(folder / LOCALE)])
    assert (folder / LOCALE).is_dir(), f"{made.stderr}; the package locales has its sources"
    return {**os.environ, "LOCPATH": str(folder), "LC_ALL": LOCALE}


def run(code: str, german: dict[str, str], *arguments: str) -> object:
    found = json.loads(output_of(BEGIN + code, *arguments, env=german))
    fired("comma locale")  # BEGIN has checked it.
    return found


SCORES = [1.5, -0.25, 0.1, 1e300, -1e300, 5e-324, 2.2250738585072014e-308, 1 / 3, 3.0, 2.0**53]

SETS = """
url, methods, scores = json.loads(sys.argv[1])
scores += [float("inf"), float("-inf")]
found = []
with hotcount.connect(url) as store:
    for method in methods:
        sets = hotcount.LiveSets(store, method=method)
        sets.create("z", 60.5, {"first": 0.5})
        for number, score in enumerate(scores):
            assert sets.upsert("z", str(number), score), score
        sets.upsert_many([("z", str(number), score) for number, score in enumerate(scores)])
        sets.create("whole", 60, {str(number): score for number, score in enumerate(scores)})
        for key in ("z", "whole"):
            top = dict(sets.top(key, 100))
            found.append([top[str(number)] for number in range(len(scores))] == scores)
print(json.dumps(found))
"""


@pytest.mark.parametrize("kind", ["memory", pytest.param("redis", marks=pytest.mark.server)])
def test_scores_are_the_same_numbers(
    kind: str, german: dict[str, str], request: pytest.FixtureRequest
) -> None:
    url, methods = "memory://", ["script"]
    if kind == "redis":
        server: RedisServer = request.getfixturevalue("own_redis")
        url, methods = server.url, ["script", "ttl_gate"]
    found = run(SETS, german, json.dumps([url, methods, SCORES]))
    assert found == [True] * 2 * len(methods)


def test_options_and_replies_are_the_same_numbers(
    german: dict[str, str], own_redis: RedisServer, tmp_path: Path
) -> None:
    code = """
store = hotcount.connect(sys.argv[1], timeout=0.5)
answers = [
    store.execute("ZADD", "plain", 1.5, "a"),
    float(store.execute("ZSCORE", "plain", "a")),
    float(store.execute("ZINCRBY", "plain", 0.25, "a")),
]
limiter = hotcount.Limiter(store, hotcount.Rate(3, 1.5, 3))
decision = limiter.hit("k")
answers += [decision.remaining, 0 < decision.reset_after <= 1.5]
answers.append(hotcount.PeriodCounter(store, period="day").add("k", 2))
counter = hotcount.Counter(store, ttl=7.5)
answers += [counter.add("k", 2), 7 < counter.ttl("k") <= 7.5]
database = hotcount.Database("sqlite:///" + sys.argv[2], timeout=2.5)
votes = hotcount.Votes(database, store, max_age=1.5)
votes.create_tables()
votes.add_items([1])
votes.cast(1, 2)
answers.append(int(votes.count(1)))
print(json.dumps(answers))
"""
    answers = run(code, german, own_redis.url, str(tmp_path / "votes.db"))
    assert answers == [1, 1.5, 1.75, 2, True, 2, 2, True, 1]
