"""Counts of vote tables that an ORM, psql or a cascade writes to, with and without triggers."""

from __future__ import annotations

from typing import Any

import hotcount
import pytest
import sqlalchemy as sa
from hotcount.integrations.sqlalchemy import cast_vote

from tests.support.fired import fired
from tests.support.sql_votes import make_votes
from tests.support.sqlalchemy_side import BothSides

FORMS = ["none", "deletes", "count"]
STRATEGIES = ["naive", "slotted", "batched", "cached"]
ROWS = {1: 10, 2: 5}  # Votes of 1 by item, each of another user.
SUMS = (
    "SELECT i.id, COALESCE(v.n, 0) + COALESCE(a.n, 0) FROM item AS i"
    " LEFT JOIN (SELECT item_id, SUM(val) AS n FROM vote GROUP BY item_id) AS v ON v.item_id = i.id"
    " LEFT JOIN (SELECT item_id, SUM(val) AS n FROM vote_anonymous GROUP BY item_id) AS a"
    " ON a.item_id = i.id"
)

# What others write, and from which form on it is counted.
OUTSIDE = {
    "delete": ("deletes", "DELETE FROM vote WHERE item_id = 1 AND user_id <= 5"),
    "delete-all": ("deletes", "DELETE FROM vote"),
    "delete-of-retracted": ("deletes", "DELETE FROM vote WHERE val = 0"),
    "insert": ("count", "INSERT INTO vote (item_id, user_id, val) VALUES (1, 90, 1), (2, 91, 3)"),
    "insert-of-0": ("deletes", "INSERT INTO vote (item_id, user_id, val) VALUES (1, 90, 0)"),
    "update": ("count", "UPDATE vote SET val = 7 WHERE user_id IN (1, 2, 13)"),
    "update-of-nothing": ("deletes", "UPDATE vote SET val = val"),
    "move": ("count", "UPDATE vote SET item_id = 2 WHERE user_id = 3"),
    "other-user": ("deletes", "UPDATE vote SET user_id = 99 WHERE user_id = 3"),
}
OF_DIALECT = {
    "postgresql": {
        "on-conflict": (
            "count",
            "INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 4), (1, 90, 1)"
            " ON CONFLICT (item_id, user_id) DO UPDATE SET val = excluded.val",
        ),
        "truncate": ("deletes", "TRUNCATE vote"),
        "merge": (
            "count",
            "MERGE INTO vote USING (VALUES (1, 1), (1, 90)) AS s (i, u)"
            " ON item_id = s.i AND user_id = s.u WHEN MATCHED THEN UPDATE SET val = 6"
            " WHEN NOT MATCHED THEN INSERT (item_id, user_id, val) VALUES (s.i, s.u, 2)",
        ),
        "merge-delete": (
            "deletes",
            "MERGE INTO vote USING (VALUES (1, 1)) AS s (i, u)"
            " ON item_id = s.i AND user_id = s.u WHEN MATCHED THEN DELETE",
        ),
        "copy": (
            "count",
            "COPY vote (item_id, user_id, val) FROM PROGRAM 'echo 2,70,1' (FORMAT csv)",
        ),
        "replica-role": ("never", "SET LOCAL session_replication_role = replica; DELETE FROM vote"),
    },
    "mariadb": {
        "ignore": (
            "count",
            "INSERT IGNORE INTO vote (item_id, user_id, val) VALUES (1, 1, 4), (1, 90, 1)",
        ),
        "on-duplicate": (
            "count",
            "INSERT INTO vote (item_id, user_id, val) VALUES (1, 1, 4), (1, 90, 1)"
            " ON DUPLICATE KEY UPDATE val = VALUES(val)",
        ),
        "delete-of-two-tables": (
            "deletes",
            "DELETE v FROM vote AS v JOIN (SELECT 1 AS u UNION SELECT 2) AS s ON s.u = v.user_id",
        ),
        "update-of-two-tables": (
            "count",
            "UPDATE vote AS v JOIN (SELECT 1 AS u UNION SELECT 2) AS s ON s.u = v.user_id"
            " SET v.val = 9",
        ),
        # Of the users 1 to 3, the first alone can be the one that the statement says.
        "update-ignore": (
            "count",
            "UPDATE IGNORE vote SET user_id = 1, val = 9 WHERE user_id <= 3 ORDER BY user_id",
        ),
        "update-ignore-of-the-item": (
            "count",
            "UPDATE IGNORE vote SET item_id = item_id * 2, val = 4 WHERE user_id IN (1, 2, 13)",
        ),
        "update-ignore-of-two-tables": (
            "count",
            "UPDATE IGNORE vote AS v JOIN (SELECT 1 AS u UNION SELECT 2) AS s ON s.u = v.user_id"
            " SET v.user_id = 1, v.val = 9",
        ),
        "truncate": ("never", "TRUNCATE vote"),
    },
}


def sums(sides: BothSides) -> dict[int, int]:
    """What the rows say."""
    return {int(item): int(n) for item, n in sides.run(SUMS)}


def counts(votes: hotcount.Votes) -> dict[int, int]:
    items = [1, 2, 3]
    return dict(zip(items, map(int, votes.count_many(items, consistency="exact")), strict=True))


def seed(votes: hotcount.Votes) -> None:
    """The votes of ROWS and a retracted one, and no others."""
    for item in (1, 2, 3):
        votes.remove_item(item)
    items = [item for item, n in ROWS.items() for _ in range(n)]
    votes.cast_many(items, range(1, len(items) + 1))
    votes.cast(3, 50)
    votes.retract(3, 50)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("form", FORMS)
def test_writes_of_others_count_from_their_form_on(
    sides: BothSides, strategy: Any, form: Any
) -> None:
    with make_votes(sides, strategy, outside_writes=form) as votes:
        for name, (since, text) in (OUTSIDE | OF_DIALECT.get(sides.dialect, {})).items():
            seed(votes)
            before = sums(sides)
            assert counts(votes) == before, name
            sides.run(text)
            fired("outside write")
            after = sums(sides)
            covered = since in FORMS and FORMS.index(form) >= FORMS.index(since)
            # The truth of cached is the votes themselves.
            assert counts(votes) == (after if covered or strategy == "cached" else before), name
            votes.reconcile()
            assert counts(votes) == after, name


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("form", ["deletes", "count"])
def test_our_own_writes_count_once(sides: BothSides, strategy: Any, form: Any) -> None:
    with make_votes(sides, strategy, outside_writes=form) as votes:
        seed(votes)
        votes.cast(1, 60, 3)
        votes.cast(1, 60, 2)
        votes.toggle(2, 60)
        votes.toggle(2, 60)
        votes.cast(3, None, op_id="a")
        assert counts(votes) == sums(sides)
        with sides.engine.begin() as session:
            cast_vote(session, votes, 1, 61)
            # In the transaction of a vote of ours.
            session.execute(sa.text("DELETE FROM vote WHERE item_id = 1 AND user_id IN (1, 2)"))
            cast_vote(session, votes, 2, 62, 5)
        assert counts(votes) == sums(sides)
        votes.erase_user(3)
        assert counts(votes) == sums(sides)
        votes.prune(2**62)
        votes.remove_item(2)
        assert counts(votes)[1] == sums(sides)[1]
        assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("form", ["deletes", "count"])
def test_triggers_follow_every_change_of_strategy(sides: BothSides, form: Any) -> None:
    first = make_votes(sides, outside_writes=form)
    cells: tuple[str, Any] = ("batched", {"item_count": None})
    names = ["slotted", "batched", "cached", "batched", "naive", "cached", "slotted"]
    for turn, (strategy, options) in enumerate([cells, *((name, {}) for name in names)]):
        with make_votes(sides, strategy, **options) as votes:
            assert votes.stats()["outside_writes"] == form
            votes.cast_many([1] * 4, range(10 * turn, 10 * turn + 4))
            sides.run(f"DELETE FROM vote WHERE user_id = {10 * turn}")
            if form == "count":
                sides.run(
                    f"INSERT INTO vote (item_id, user_id, val) VALUES (1, {turn * 10 + 9}, 2)"
                )
            assert counts(votes) == sums(sides)
            votes.flush()
            assert votes.reconcile(dry_run=True) == []
            assert int(votes.count(1)) == sums(sides)[1]
    with pytest.raises(hotcount.ConfigError, match=r"was last counted in its (cells|journal)"):
        first.cast(1, 2)


@pytest.mark.parametrize("form", ["deletes", "count"])
def test_names_with_line_breaks_and_dollars_are_those_of_the_triggers(
    sides: BothSides, form: Any
) -> None:
    votes = hotcount.Votes(
        sides.database,
        strategy="batched",
        item_table="it\nem $changes$",
        item_id="i\nd",
        vote_table="v\no",
        vote_item="it\nem",
        vote_value="v\nal",
    )
    votes.create_tables(outside_writes=form)
    votes.add_items([1])
    votes.cast_many([1, 1, 1], [1, 2, 3])
    quote = sides.engine.dialect.identifier_preparer.quote_identifier
    sides.run(f"DELETE FROM {quote('v' + chr(10) + 'o')} WHERE user_id = 1")
    assert votes.count(1, consistency="exact") == 2
    votes.erase_user(2)
    assert votes.count(1, consistency="exact") == 1
