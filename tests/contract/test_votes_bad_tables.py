"""Tables and ids that are not what Votes was told: named, and nothing is applied."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import hotcount
import pytest
from hotcount import Votes

STRATEGIES = ["naive", "slotted", "batched"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("made_with", "lacks"),
    [({"item_count": "likes"}, "vote_count"), ({"vote_user": "who"}, "user_id")],
)
def test_a_column_that_is_not_there_is_named(
    database: hotcount.Database, strategy: Any, made_with: dict[str, Any], lacks: str
) -> None:
    right = Votes(database, strategy=strategy, **made_with)
    right.create_tables()
    right.add_items([1])
    assert right.cast(1, 7).changed
    wrong = Votes(database, strategy=strategy)
    # A vote of slotted touches no item.
    touches = lacks == "user_id" or strategy != "slotted"
    with pytest.raises(hotcount.DatabaseError, match=lacks):
        wrong.cast(1, 8) if touches else wrong.reconcile()
    assert int(right.count(1)) == 1
    assert not right.cast(1, 7).changed


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_id_longer_than_its_column_is_refused_or_kept_whole(
    database: hotcount.Database, strategy: Any
) -> None:
    votes = Votes(database, strategy=strategy, user_type=str)
    votes.create_tables()
    votes.add_items([1])
    longest = "x" * 300
    changed = False
    with suppress(hotcount.DatabaseError):
        changed = votes.cast(1, longest).changed
    # Cut off, it would be the vote of this one.
    assert votes.cast(1, "x" * 255).changed
    assert int(votes.count(1)) == 1 + changed
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_nul_in_an_id_is_refused_or_kept(database: hotcount.Database, strategy: Any) -> None:
    votes = Votes(database, strategy=strategy, user_type=str)
    votes.create_tables()
    votes.add_items([1])
    changed = False
    with suppress(hotcount.DatabaseError, hotcount.ConfigError):
        changed = votes.cast(1, "a\0b").changed
    # Cut off, it would be the vote of this one.
    assert votes.cast(1, "a").changed
    assert int(votes.count(1)) == 1 + changed
