"""Votes of callers' own SQLAlchemy transactions beside remove_item, erase_user and prune."""

from __future__ import annotations

import random
from typing import Any

import hotcount
import pytest
import sqlalchemy as sa
from hotcount.integrations.sqlalchemy import cast_vote, retract_vote
from sqlalchemy.orm import Session

from tests.support.sql_votes import make_votes
from tests.support.sqlalchemy_side import BothSides
from tests.support.together import together

STRATEGIES = ["naive", "slotted", "batched", "cached"]
ITEMS = 4
USERS = 6
TURNS = 12


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sessions_that_commit_and_roll_back_beside_removals_leave_counts_right(
    sides: BothSides, strategy: Any, isolation: str
) -> None:
    votes = make_votes(sides, strategy, items=range(1, ITEMS + 1), missing_items="create")
    engine = sides.engine
    if sides.dialect != "sqlite":  # It has one level alone.
        engine = engine.execution_options(isolation_level=isolation)
    committed = []

    def sessions(seed: int) -> None:
        drawn = random.Random(seed)
        for _ in range(TURNS):
            item, user = drawn.randint(1, ITEMS), drawn.randint(1, USERS)
            try:
                with Session(engine) as session:
                    cast_vote(session, votes, item, user, drawn.randint(1, 3))
                    if drawn.random() < 0.3:
                        retract_vote(session, votes, item, drawn.randint(1, USERS))
                    if drawn.random() < 0.4:
                        session.rollback()
                        continue
                    session.commit()
                    committed.append(item)
            except (sa.exc.DBAPIError, hotcount.HotcountError):
                # A conflict with a removal: the caller's transaction is gone, as any is.
                continue

    def removals() -> None:
        drawn = random.Random(0)
        for _ in range(TURNS):
            votes.remove_item(drawn.randint(1, ITEMS), timeout=30)
            votes.erase_user(drawn.randint(1, USERS), timeout=30)
            votes.prune(5, timeout=30)

    together(lambda seed: sessions(seed) if seed else removals(), 4)
    assert committed
    if strategy == "cached":
        votes.sync_worker().run_once(timeout=30)
    assert votes.reconcile(dry_run=True, timeout=30) == []
    votes.flush(timeout=30)
    for item in range(1, ITEMS + 1):
        voted = sum(value for _, value in votes.voters(item))
        assert int(votes.count(item, consistency="exact")) == voted
