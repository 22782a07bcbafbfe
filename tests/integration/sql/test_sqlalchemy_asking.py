"""Questions about votes inside the caller's own SQLAlchemy transaction, on every dialect."""

from __future__ import annotations

import uuid
from typing import Any

import hotcount
import pytest
from hotcount.integrations.sqlalchemy import cast_vote, get_vote, get_votes, retract_vote, voters
from sqlalchemy.orm import Session

from tests.support.sql_votes import make_votes
from tests.support.sqlalchemy_side import BACKENDS, BothSides

STRATEGIES = ["naive", "slotted", "batched", "cached"]


def make(sides: BothSides, strategy: Any = "batched", **options: Any) -> hotcount.Votes:
    return make_votes(sides, strategy, items=(), missing_items="create", **options)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_transaction_sees_its_own_votes_and_others_do_not(
    sides: BothSides, strategy: str
) -> None:
    votes = make(sides, strategy)
    votes.cast_many([1, 2], [7, 8], [1, 5])
    with Session(sides.engine) as session:
        cast_vote(session, votes, 3, 7, -4)
        retract_vote(session, votes, 1, 7)
        assert get_vote(session, votes, 3, 7) == -4
        assert get_votes(session, votes, [3, 2, 1, 9, 3], 7) == [-4, 0, 0, 0, -4]
        assert voters(session, votes, 3) == [(7, -4)]
        assert voters(session, votes, 1) == []
        session.rollback()
    assert votes.get(3, 7) == 0
    assert list(votes.get_many([1, 2], 7)) == [1, 0]


def test_pages_of_voters_and_many_items_in_a_session(sides: BothSides) -> None:
    votes = make(sides)
    votes.cast_many([1] * 5, [5, 3, 1, 4, 2])
    votes.cast_many(range(100, 2100), [9] * 2000, range(1, 2001))
    with Session(sides.engine) as session:
        assert voters(session, votes, 1, limit=2) == [(1, 1), (2, 1)]
        assert voters(session, votes, 1, after=2, limit=9) == [(3, 1), (4, 1), (5, 1)]
        assert get_votes(session, votes, range(99, 2101), 9) == [0, *range(1, 2001), 0]
        assert get_votes(session, votes, [], 9) == []
        for limit in (0, 10_001):
            with pytest.raises(hotcount.ConfigError):
                voters(session, votes, 1, limit=limit)
        with pytest.raises(TypeError):
            get_vote(session, votes, "1", 9)


def test_ids_of_text_and_uuid_come_back_as_they_are(sides: BothSides) -> None:
    votes = make(sides, item_type=uuid.UUID, user_type=str)
    items = [uuid.UUID(int=n) for n in (1, 2)]
    votes.cast_many([items[0]] * 2, ["ä", "it's"], [1, 2])
    with Session(sides.engine) as session:
        assert get_votes(session, votes, items, "ä") == [1, 0]
        assert voters(session, votes, items[0]) == [("it's", 2), ("ä", 1)]
    users = make(sides, item_type=str, user_type=uuid.UUID, item_table="post", vote_table="likes")
    users.cast_many(["a", "b"], [items[1], items[1]])
    with Session(sides.engine) as session:
        assert voters(session, users, "a") == [(items[1], 1)]
        assert get_votes(session, users, ["b", "c", "a"], items[1]) == [1, 0, 1]


# PostgreSQL's are refused by create_tables().
CASE_FOLDING = {
    "sqlite": "TEXT COLLATE NOCASE",
    "mariadb": "VARCHAR(50) COLLATE utf8mb4_general_ci",
}


@pytest.mark.parametrize("sides", [BACKENDS[0], BACKENDS[2]], indirect=True)
def test_columns_that_fold_case_are_asked_in_any_spelling(sides: BothSides) -> None:
    ids = CASE_FOLDING[sides.dialect]
    with sides.engine.begin() as connection:
        connection.exec_driver_sql(
            f"CREATE TABLE item (id {ids} NOT NULL PRIMARY KEY, vote_count BIGINT DEFAULT 0)"
        )
        connection.exec_driver_sql(
            f"CREATE TABLE vote (item_id {ids} NOT NULL, user_id BIGINT NOT NULL, val BIGINT NOT "
            "NULL, prev BIGINT NOT NULL DEFAULT 0, version BIGINT, PRIMARY KEY (item_id, user_id))"
        )
    votes = make(sides, item_type=str)
    votes.add_items(["Photo", "Text"])
    votes.cast("Photo", 7, 3)
    assert list(votes.get_many(["PHOTO", "text", "photo"], 7)) == [3, 0, 3]
    with Session(sides.engine) as session:
        assert get_votes(session, votes, ["PHOTO", "text", "photo"], 7) == [3, 0, 3]
    assert votes.erase_user(7) == 1
    assert int(votes.count("photo")) == 0
