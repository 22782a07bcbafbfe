"""PostgreSQL with isolation=serializable in the URL, as servers without READ COMMITTED want it:
transactions that the server cannot order (40001) begin again within the deadline of their call."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import hotcount
import pytest

from tests.support.eventually import eventually
from tests.support.servers import PostgresDatabase
from tests.support.together import beside, together

CALLERS = 8
STRATEGIES = pytest.mark.parametrize("strategy", ["naive", "slotted", "batched"])


def opened(postgres: PostgresDatabase, **options: Any) -> hotcount.Database:
    return hotcount.Database(f"{postgres.url}&isolation=serializable", timeout=60, **options)


def conflicts(postgres: PostgresDatabase) -> int:
    return postgres.server.errors_given()["postgres 40001"]


@STRATEGIES
def test_votes_folds_and_a_strategy_that_changes_lose_and_double_nothing(
    postgres: PostgresDatabase, strategy: Any
) -> None:
    before = conflicts(postgres)
    with hotcount.Votes(opened(postgres), None, strategy, fold_interval=0.02) as votes:
        votes.create_tables()
        votes.add_items([1, 2, 3])
        # Objects of their own, as in other processes: one group commit would have no conflicts.
        others = [
            hotcount.Votes(opened(postgres, max_readers=1 + n), None, strategy) for n in range(3)
        ]

        rounds = itertools.count()
        changed = 0

        def vote(index: int, first: int) -> int:
            own, changed = others[index % 3], 0
            for number in range(first, first + 15):
                items = [1, 2, 3] if (index + number) % 2 else [3, 2, 1]
                # Fresh votes of one's own, and ones that everybody casts.
                changed += sum(own.cast_many(items, [1000 * (index + 1) + number, 7, 8]).changed)
                changed += own.cast(1, 9).changed
            return changed

        def meet() -> bool:
            nonlocal changed
            first = 15 * next(rounds)
            changed += sum(together(lambda index: vote(index, first), CALLERS))
            return conflicts(postgres) > before

        eventually(meet, 60)
        assert sum(map(int, votes.count_many([1, 2, 3], consistency="exact"))) == changed
        votes.flush(60)
        assert votes.reconcile(dry_run=True) == []
        assert int(postgres.psql("SELECT SUM(vote_count) FROM item")) == changed
        with hotcount.Votes(opened(postgres), None, "batched") as again:
            again.create_tables()
            assert sum(map(int, again.count_many([1, 2, 3], consistency="exact"))) == changed
        for other in others:
            other.close()


def test_no_vote_counts_in_the_old_place_beside_a_strategy_that_changes(
    postgres: PostgresDatabase,
) -> None:
    """The statement's snapshot is older than its wait for the table: the mark is locked."""
    users = itertools.count()
    with hotcount.Votes(opened(postgres), None, "naive") as first:
        first.create_tables()
        first.add_items([1])
    refused = [0]

    def vote(strategy: Any) -> Any:
        def until(ended: threading.Event) -> None:
            with hotcount.Votes(opened(postgres), None, strategy) as votes:
                while not ended.is_set():
                    try:
                        votes.cast(1, next(users))
                    except hotcount.ConfigError:  # It counts elsewhere now.
                        refused[0] += 1

        return until

    with beside(vote("naive"), vote("batched"), vote("slotted")):
        for strategy in ("batched", "naive", "slotted", "naive"):
            with hotcount.Votes(opened(postgres), None, strategy) as votes:
                votes.create_tables()
    assert refused[0] > 0
    with hotcount.Votes(opened(postgres), None, "naive") as votes:
        votes.create_tables()
        assert votes.reconcile(dry_run=True) == []
        assert int(votes.count(1)) == int(postgres.psql("SELECT COUNT(*) FROM vote"))


def test_slots_and_limits_are_exact(postgres: PostgresDatabase) -> None:
    before = conflicts(postgres)
    # Objects of their own, as in other processes.
    databases = [opened(postgres, max_readers=1 + n) for n in range(4)]
    slots = [hotcount.SlottedCounter(each, slots=1) for each in databases]
    limits = [hotcount.Limiter(each, "20/hour") for each in databases]
    slots[0].create_table()
    limits[0].create_table()
    rounds = itertools.count(1)

    def work(index: int) -> int:
        admitted = 0
        for number in range(10):
            slots[index % 4].add("hot")
            slots[index % 4].add("once", op_id=f"op {number}")
            admitted += bool(limits[index % 4].hit("hot"))
        return admitted

    assert sum(together(work, CALLERS)) == 20
    next(rounds)

    def meet() -> bool:
        assert sum(together(work, CALLERS)) == 0
        next(rounds)
        return conflicts(postgres) > before

    eventually(meet, 60)
    added = 10 * CALLERS * (next(rounds) - 1)
    assert [(each.get("hot"), each.get("once")) for each in slots] == [(added, 10)] * 4


@pytest.mark.parametrize("level", ["", "snapshot", "SERIALIZABLE"])
def test_another_level_is_refused_by_name(postgres: PostgresDatabase, level: str) -> None:
    with pytest.raises(hotcount.ConfigError, match="isolation takes serializable alone"):
        hotcount.Database(f"{postgres.url}&isolation={level}")
