"""Tables and ids that are not what Votes was told: named, and nothing is applied."""

from contextlib import suppress
from typing import Any

import hotcount
import pytest
from hotcount import Database, Votes

STRATEGIES = ["naive", "slotted", "batched"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("made_with", "lacks"),
    [({"item_count": "likes"}, "vote_count"), ({"vote_user": "who"}, "user_id")],
)
def test_a_column_that_is_not_there_is_named(
    database: hotcount.Database, strategy: Any, made_with: dict[str, Any], lacks: str
) -> None:
    right = Votes(database, strategy=strategy, fold_interval=3600, **made_with)
    right.create_tables()
    right.add_items([1])
    assert right.cast(1, 7).changed
    right.flush()
    wrong = Votes(database, strategy=strategy, fold_interval=3600)
    voted = False
    # Where an item's count is shown later, a vote does not touch it.
    with suppress(hotcount.DatabaseError):
        voted = wrong.cast(1, 8).changed
    with pytest.raises(hotcount.DatabaseError, match=lacks):
        wrong.flush() if voted else wrong.cast(1, 8)
    if voted and strategy == "batched":
        assert lacks in wrong.stats()["fold_error"]
    assert int(right.count(1)) == 1 + voted
    assert not right.cast(1, 7).changed


@pytest.mark.parametrize("called", ["item_table", "vote_table"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_table_is_called_like_a_statement(database: Database, strategy: Any, called: str) -> None:
    for name in ["b", "c", "f", "i", "s", "v", "w", "ok", "one", "page", "written", "noted"]:
        names: dict[str, Any] = {"item_table": f"{name}_item", "vote_table": f"{name}_vote"}
        names[called] = name
        votes = Votes(database, **names, strategy=strategy, foreign_key=called == "vote_table")
        votes.create_tables()
        votes.add_items([1, 2])
        assert votes.cast(1, 7).changed
        assert list(votes.cast_many([1, 2, 2], [8, 7, 8]).changed) == [True] * 3
        assert not votes.cast(1, 7).changed
        assert votes.cast(1, None, op_id="one").changed
        assert [int(count) for count in votes.count_many([1, 2])] == [3, 2], name
        votes.flush()
        assert votes.reconcile(dry_run=True) == [], name


@pytest.mark.parametrize(
    ("bad", "cut"), [("x" * 300, "x" * 255), ("a\0b", "a")], ids=["too long", "with a NUL"]
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_id_that_does_not_fit(database: Database, strategy: Any, bad: str, cut: str) -> None:
    votes = Votes(database, strategy=strategy, user_type=str)
    votes.create_tables()
    votes.add_items([1])
    changed = False
    with suppress(hotcount.DatabaseError, hotcount.ConfigError):
        changed = votes.cast(1, bad).changed
    # Cut off, it would be the vote of this one.
    assert votes.cast(1, cut).changed
    assert int(votes.count(1)) == 1 + changed
    assert votes.reconcile(dry_run=True) == []
