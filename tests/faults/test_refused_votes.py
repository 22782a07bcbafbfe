"""One vote of a batch that the database refuses for itself: it fails alone, the others are done.

Also where the refusal spoils the transaction, which is then written again in halves.
"""

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any

import hotcount
import hotcount.aio
import pytest

from tests.support.fired import fired
from tests.support.mysql_server import is_mysql
from tests.support.sqlalchemy_side import BACKENDS, BothSides

STRATEGIES = ["naive", "slotted", "batched", "cached"]
GROUPED = ["batched", "cached"]
SIZE = 40


def run(sides: BothSides, *statements: str) -> None:
    with sides.engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


@dataclass
class Refusal:
    """What is wrong with one vote, and what each database says of it."""

    codes: dict[str, str]
    tables: dict[str, list[str]] = field(default_factory=dict)
    after: dict[str, list[str]] = field(default_factory=dict)
    user: Any = 13
    others: type = int


def vote_table(user_id: str, more: str = "", *, text: str = "BIGINT") -> str:
    return (
        f"CREATE TABLE vote (item_id {text} NOT NULL, user_id {user_id} NOT NULL, "
        f"val {text} NOT NULL, prev {text} NOT NULL DEFAULT 0, version {text}, "
        f"PRIMARY KEY (item_id, user_id){more})"
    )


CHECK = ", CHECK (user_id <> 13)"
PERSONS = [
    "CREATE TABLE person (id BIGINT PRIMARY KEY)",
    "INSERT INTO person VALUES " + ", ".join(f"({user})" for user in range(100, 100 + SIZE)),
]
NO_PADDING = "utf8mb4_0900_bin" if is_mysql() else "utf8mb4_nopad_bin"
KNOWN = ", FOREIGN KEY (user_id) REFERENCES person (id)"
RAISE = (
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "IF NEW.user_id = 13 THEN RAISE EXCEPTION 'not you'; END IF; RETURN NEW; END $$"
)

REFUSALS: dict[str, Refusal] = {
    "trigger": Refusal(
        {"sqlite": "SQLITE_CONSTRAINT_TRIGGER", "postgresql": "P0001", "mariadb": "1644"},
        after={
            "sqlite": [
                "CREATE TRIGGER refuse BEFORE INSERT ON vote WHEN NEW.user_id = 13 "
                "BEGIN SELECT RAISE(ABORT, 'not you'); END"
            ],
            "postgresql": [
                RAISE,
                "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON vote FOR EACH ROW "
                "EXECUTE FUNCTION refuse()",
            ],
            "mariadb": [
                "CREATE TRIGGER refuse BEFORE INSERT ON vote FOR EACH ROW "
                "IF NEW.user_id = 13 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not you'; "
                "END IF"
            ],
        },
    ),
    # What a poll that is closed may well raise, and the server itself hardly ever.
    "trigger with a code of the server's": Refusal(
        {"postgresql": "55000"},
        after={
            "postgresql": [
                RAISE.replace(
                    "'not you'", "'not you' USING ERRCODE = 'object_not_in_prerequisite_state'"
                ),
                "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON vote FOR EACH ROW "
                "EXECUTE FUNCTION refuse()",
            ]
        },
    ),
    # To PostgreSQL that is a serialization failure, which passes.
    "trigger with a code of another database's": Refusal(
        {"mariadb": "40001"},
        after={
            "mariadb": [
                "CREATE TRIGGER refuse BEFORE INSERT ON vote FOR EACH ROW "
                "IF NEW.user_id = 13 THEN SIGNAL SQLSTATE '45000' "
                "SET MESSAGE_TEXT = 'not you', MYSQL_ERRNO = 40001; END IF"
            ]
        },
    ),
    "trigger that leaves the row": Refusal(
        {"sqlite": "SQLITE_CONSTRAINT_TRIGGER"},
        after={
            "sqlite": [
                "CREATE TRIGGER refuse AFTER INSERT ON vote WHEN NEW.user_id = 13 "
                "BEGIN SELECT RAISE(FAIL, 'not you'); END"
            ]
        },
    ),
    "trigger that rolls back": Refusal(
        {"sqlite": "SQLITE_CONSTRAINT_TRIGGER"},
        after={
            "sqlite": [
                "CREATE TRIGGER refuse BEFORE INSERT ON vote WHEN NEW.user_id = 13 "
                "BEGIN SELECT RAISE(ROLLBACK, 'not you'); END"
            ]
        },
    ),
    "trigger of the item": Refusal(
        {"sqlite": "SQLITE_CONSTRAINT_TRIGGER", "postgresql": "P0001", "mariadb": "1644"},
        after={
            "sqlite": [
                "CREATE TRIGGER refuse BEFORE UPDATE ON item WHEN NEW.id = 9 "
                "BEGIN SELECT RAISE(ABORT, 'closed'); END"
            ],
            "postgresql": [
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "IF NEW.id = 9 THEN RAISE EXCEPTION 'closed'; END IF; RETURN NEW; END $$",
                "CREATE TRIGGER refuse BEFORE UPDATE ON item FOR EACH ROW "
                "EXECUTE FUNCTION refuse()",
            ],
            "mariadb": [
                "CREATE TRIGGER refuse BEFORE UPDATE ON item FOR EACH ROW "
                "IF NEW.id = 9 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'closed'; END IF"
            ],
        },
    ),
    "trigger at the commit": Refusal(
        {"postgresql": "P0001"},
        after={
            "postgresql": [
                RAISE,
                "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON vote DEFERRABLE INITIALLY "
                "DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
            ]
        },
    ),
    "check": Refusal(
        {
            "sqlite": "SQLITE_CONSTRAINT_CHECK",
            "postgresql": "23514",
            "mariadb": "4025",
            "mysql": "3819",
        },
        tables={
            "sqlite": [vote_table("INTEGER", CHECK, text="INTEGER")],
            "postgresql": [vote_table("BIGINT", CHECK)],
            "mariadb": [vote_table("BIGINT", CHECK)],
        },
    ),
    "unknown person": Refusal(
        {"sqlite": "SQLITE_CONSTRAINT_FOREIGNKEY", "postgresql": "23503", "mariadb": "1452"},
        tables={
            "sqlite": [*PERSONS, vote_table("INTEGER", KNOWN, text="INTEGER")],
            "postgresql": [*PERSONS, vote_table("BIGINT", KNOWN)],
            "mariadb": [*PERSONS, vote_table("BIGINT", KNOWN)],
        },
    ),
    "unknown person at the commit": Refusal(
        {"sqlite": "SQLITE_CONSTRAINT_FOREIGNKEY", "postgresql": "23503"},
        tables={
            "sqlite": [
                *PERSONS,
                vote_table("INTEGER", KNOWN + " DEFERRABLE INITIALLY DEFERRED", text="INTEGER"),
            ],
            "postgresql": [
                *PERSONS,
                vote_table("BIGINT", KNOWN + " DEFERRABLE INITIALLY DEFERRED"),
            ],
        },
    ),
    "domain": Refusal(
        {"postgresql": "23514"},
        tables={
            "postgresql": ["CREATE DOMAIN voter AS bigint CHECK (value <> 13)", vote_table("voter")]
        },
    ),
    "narrow integer": Refusal(
        {"postgresql": "22003", "mariadb": "1264"},
        tables={"postgresql": [vote_table("INTEGER")], "mariadb": [vote_table("INTEGER")]},
        user=2**31,
    ),
    "narrow text": Refusal(
        {"sqlite": "SQLITE_CONSTRAINT_CHECK", "postgresql": "22001", "mariadb": "1406"},
        tables={
            "sqlite": [vote_table("TEXT", ", CHECK (length(user_id) < 6)", text="INTEGER")],
            "postgresql": [vote_table("VARCHAR(5)")],
            "mariadb": [vote_table(f"VARCHAR(5) CHARACTER SET utf8mb4 COLLATE {NO_PADDING}")],
        },
        user="longer than 5",
        others=str,
    ),
    "text that the column cannot spell": Refusal(
        {"mariadb": "1366", "mysql": "3988"},
        tables={"mariadb": [vote_table("VARCHAR(50) CHARACTER SET latin1 COLLATE latin1_bin")]},
        user="smile \U0001f600",
        others=str,
    ),
}

REFUSALS["no such poll"] = Refusal(
    REFUSALS["trigger"].codes,
    after={
        dialect: [statement.replace("not you", "no such poll") for statement in statements]
        for dialect, statements in REFUSALS["trigger"].after.items()
    },
)


def item_of(kind: str, place: int, bad: int) -> int:
    if kind == "trigger of the item":
        return 9 if place == bad else 1 + place % 3
    return 1 + place % 3


def make(sides: BothSides, kind: str, strategy: Any, **options: Any) -> hotcount.Votes:
    refusal = REFUSALS[kind]
    if strategy == "cached":
        options.setdefault("cache", hotcount.Memory())
    run(sides, *refusal.tables.get(sides.dialect, []))
    votes = hotcount.Votes(sides.database, strategy=strategy, user_type=refusal.others, **options)
    votes.create_tables()
    votes.add_items([1, 2, 3, 9])
    run(sides, *refusal.after.get(sides.dialect, []))
    return votes


def cases(strategies: list[str]) -> pytest.MarkDecorator:
    """Of each database those that it knows."""
    return pytest.mark.parametrize(
        ("sides", "kind", "strategy"),
        [
            pytest.param(*backend.values, kind, strategy, marks=backend.marks)
            for backend in BACKENDS
            for kind, refusal in REFUSALS.items()
            for strategy in strategies
            if backend.values[0] in refusal.codes
            # Else it is folds and workers that touch the item.
            and not (
                kind == "trigger of the item"
                and (strategy in ("slotted", "cached") or backend.values[0] != "sqlite")
            )
            # One vote a transaction: what it is refused for makes no difference to the others.
            and (strategy in GROUPED or kind in ("trigger", "narrow integer"))
        ],
        indirect=["sides"],
    )


def is_the_refusal(error: BaseException, sides: BothSides, kind: str) -> bool:
    assert isinstance(error, (hotcount.IntegrityError, hotcount.DatabaseError)), repr(error)
    codes = REFUSALS[kind].codes
    return error.code == ((is_mysql() and codes.get("mysql")) or codes[sides.dialect])


@cases(STRATEGIES)
def test_one_refused_vote_of_forty_fails_alone(sides: BothSides, kind: str, strategy: str) -> None:
    votes = make(sides, kind, strategy)
    refusal = REFUSALS[kind]
    for bad in (0, 17, SIZE - 1):
        users = [refusal.others(100 + place) for place in range(SIZE)]
        users[bad] = refusal.user
        items = [item_of(kind, place, bad) for place in range(SIZE)]
        before = sides.database.stats()["transactions"]
        casts = votes.cast_many(items, users, errors="return")
        written = sides.database.stats()["transactions"] - before
        assert list(casts.errors) == [bad]
        fired("refused element")
        assert is_the_refusal(casts.errors[bad], sides, kind)
        assert all(cast.counted for place, cast in enumerate(casts) if place != bad)
        if strategy in GROUPED:
            # Halves that were written; the cached one also fills its counts.
            assert written <= 2 * math.ceil(math.log2(SIZE)) + 4
        votes.cast_many(items, users, 0, errors="return")
        assert [int(count) for count in votes.count_many([1, 2, 3, 9])] == [0] * 4
        votes.flush()
        assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_triggers_words_name_no_missing_table(sides: BothSides, strategy: str) -> None:
    votes = make(sides, "no such poll", strategy)
    with pytest.raises((hotcount.IntegrityError, hotcount.DatabaseError)) as refused:
        votes.cast(1, 13)
    assert is_the_refusal(refused.value, sides, "no such poll")
    assert "no such poll" in str(refused.value)
    assert "create_tables()" not in str(refused.value)


@cases(["batched"])
def test_one_refused_vote_of_awaited_ones_fails(sides: BothSides, kind: str, strategy: str) -> None:
    make(sides, kind, strategy)
    refusal = REFUSALS[kind]
    bad = 17

    async def work() -> None:
        votes = hotcount.aio.Votes(sides.database, user_type=refusal.others)
        calls = [
            votes.cast(
                item_of(kind, place, bad),
                refusal.user if place == bad else refusal.others(100 + place),
            )
            for place in range(SIZE)
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        for place, outcome in enumerate(outcomes):
            if place == bad:
                assert isinstance(outcome, BaseException)
                assert is_the_refusal(outcome, sides, kind)
            else:
                assert not isinstance(outcome, BaseException), repr(outcome)
                assert outcome.changed
        assert sum(map(int, await votes.count_many([1, 2, 3, 9]))) == SIZE - 1
        assert await votes.reconcile(dry_run=True) == []

    asyncio.run(work())


@pytest.mark.parametrize("strategy", GROUPED)
def test_votes_of_one_user_keep_their_order(sides: BothSides, strategy: str) -> None:
    votes = make(sides, "trigger", strategy)
    users = [7, 8, 7, 13, 7, 8, 13, 7, 8, 7]
    values = list(range(1, len(users) + 1))
    casts = votes.cast_many([1] * len(users), users, values, errors="return")
    assert sorted(casts.errors) == [3, 6]
    told = [(cast.previous, cast.value) for place, cast in enumerate(casts) if users[place] == 7]
    assert told == [(0, 1), (1, 3), (3, 5), (5, 8), (8, 10)]
    told = [(cast.previous, cast.value) for place, cast in enumerate(casts) if users[place] == 8]
    assert told == [(0, 2), (2, 6), (6, 9)]
    assert int(votes.count(1)) == 10 + 9


@pytest.mark.parametrize("strategy", GROUPED)
def test_one_refused_anonymous_vote_of_forty_fails_alone(sides: BothSides, strategy: str) -> None:
    votes = make(sides, "trigger", strategy)
    refuse = {
        "sqlite": "CREATE TRIGGER refuse_op BEFORE INSERT ON vote_anonymous "
        "WHEN NEW.op_id = 'bad' BEGIN SELECT RAISE(ABORT, 'not you'); END",
        "postgresql": "CREATE FUNCTION refuse_op() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF NEW.op_id = 'bad' THEN RAISE EXCEPTION 'not you'; END IF; RETURN NEW; END $$",
        "mariadb": "CREATE TRIGGER refuse_op BEFORE INSERT ON vote_anonymous FOR EACH ROW "
        "IF NEW.op_id = 'bad' THEN SIGNAL SQLSTATE '45000'; END IF",
    }[sides.dialect]
    run(sides, refuse)
    if sides.dialect == "postgresql":
        run(
            sides,
            "CREATE TRIGGER refuse_op BEFORE INSERT ON vote_anonymous FOR EACH ROW "
            "EXECUTE FUNCTION refuse_op()",
        )
    op_ids = ["bad" if place == 17 else f"op-{place}" for place in range(SIZE)]
    casts = votes.cast_many([1] * SIZE, None, op_ids=op_ids, errors="return")
    assert list(casts.errors) == [17]
    assert is_the_refusal(casts.errors[17], sides, "trigger")
    assert int(votes.count(1)) == SIZE - 1
    assert votes.reconcile(dry_run=True) == []


@pytest.mark.parametrize("strategy", GROUPED)
def test_a_table_that_is_gone_fails_all_votes_at_once(sides: BothSides, strategy: str) -> None:
    """What concerns all is not looked for one by one."""
    votes = make(sides, "trigger", strategy)
    drop = {"sqlite": "DROP TABLE vote", "mariadb": "DROP TABLE vote"}
    run(sides, drop.get(sides.dialect, "DROP TABLE vote CASCADE"))
    before = sides.database.stats()["statements"]
    casts = votes.cast_many([1] * SIZE, range(SIZE), errors="return")
    assert len(casts.errors) == SIZE
    assert all("create_tables()" in str(error) for error in casts.errors.values())
    assert sides.database.stats()["statements"] - before < SIZE


def test_one_refused_key_of_a_slotted_counters_batch_fails_alone(sides: BothSides) -> None:
    counter = hotcount.SlottedCounter(sides.database)
    counter.create_table()
    run(
        sides,
        *{
            "sqlite": [
                "CREATE TRIGGER refuse BEFORE INSERT ON hotcount_slot WHEN NEW.key = 'bad' "
                "BEGIN SELECT RAISE(ABORT, 'not you'); END"
            ],
            "postgresql": [
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "IF NEW.key = 'bad' THEN RAISE EXCEPTION 'not you'; END IF; RETURN NEW; END $$",
                "CREATE TRIGGER refuse BEFORE INSERT ON hotcount_slot FOR EACH ROW "
                "EXECUTE FUNCTION refuse()",
            ],
            "mariadb": [
                "CREATE TRIGGER refuse BEFORE INSERT ON hotcount_slot FOR EACH ROW "
                "IF NEW.`key` = 'bad' THEN SIGNAL SQLSTATE '45000'; END IF"
            ],
        }[sides.dialect],
    )
    amounts = {f"k{place}": 1 for place in range(SIZE)} | {"bad": 1, "last": 1}
    before = sides.database.stats()["transactions"]
    with pytest.raises(hotcount.BatchError) as failed:
        counter.add_many(amounts)
    written = sides.database.stats()["transactions"] - before
    assert written <= 2 * math.ceil(math.log2(len(amounts)))
    (error,) = failed.value.errors.values()
    assert is_the_refusal(error, sides, "trigger")
    assert [counter.get(key) for key in ("k0", f"k{SIZE - 1}", "last", "bad")] == [1, 1, 1, 0]


def test_one_item_whose_count_is_refused_keeps_no_other_from_being_saved(sides: BothSides) -> None:
    votes = make(sides, "trigger of the item", "cached")
    votes.add_items(range(10, 10 + SIZE))
    items = [9, *range(10, 10 + SIZE)]
    votes.cast_many(items, [7] * len(items))
    with pytest.raises((hotcount.IntegrityError, hotcount.DatabaseError)) as failed:
        votes.flush()
    assert is_the_refusal(failed.value, sides, "trigger of the item")
    with sides.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT id FROM item WHERE vote_count = 1 ORDER BY id")
        assert [row[0] for row in rows] == items[1:]
    assert int(votes.count(9)) == 1
