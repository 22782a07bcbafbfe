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
SERVERS = ("postgresql", "mariadb")
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
AT_COMMIT = " DEFERRABLE INITIALLY DEFERRED"


def vote_tables(more: str = "", *before: str, user_id: str = "BIGINT") -> dict[str, list[str]]:
    table = vote_table(user_id, more)
    sqlite = vote_table("INTEGER", more, text="INTEGER")
    return {"sqlite": [*before, sqlite], **{key: [*before, table] for key in SERVERS}}


def refusing(
    table: str, when: str, why: str = "not you", more: str = "", *,
    write: str = "INSERT", sqlite: str = "BEFORE {} ABORT", name: str = "refuse",
) -> dict[str, list[str]]:  # fmt: skip
    """Triggers that refuse a write of the table, if `when` says so of the new row. `more` follows
    the words; `sqlite` says when it fires there and how it raises."""
    moment, _, how = sqlite.format(write).rpartition(" ")
    begins = f"CREATE TRIGGER {name}"
    writes = write if write == "UPDATE" else "INSERT OR UPDATE"
    return {
        "sqlite": [
            f"{begins} {moment} ON {table} WHEN {when} BEGIN SELECT RAISE({how}, '{why}'); END"
        ],
        "postgresql": [
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {when} "
            f"THEN RAISE EXCEPTION '{why}'{more}; END IF; RETURN NEW; END $$",
            f"{begins} BEFORE {writes} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()",
        ],
        "mariadb": [
            f"{begins} BEFORE {write} ON {table} FOR EACH ROW IF {when} THEN "
            f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{why}'{more}; END IF"
        ],
    }


VOTER = ("vote", "NEW.user_id = 13")
TRIGGER = {"sqlite": "SQLITE_CONSTRAINT_TRIGGER", "postgresql": "P0001", "mariadb": "1644"}
IN_SQLITE = {"sqlite": TRIGGER["sqlite"]}
OF_CHECK = {"sqlite": "SQLITE_CONSTRAINT_CHECK", "postgresql": "23514"}
OF_KEY = {"sqlite": "SQLITE_CONSTRAINT_FOREIGNKEY", "postgresql": "23503"}

REFUSALS: dict[str, Refusal] = {
    "trigger": Refusal(TRIGGER, after=refusing(*VOTER)),
    # What a poll that is closed may well raise, and the server itself hardly ever.
    "trigger with a code of the server's": Refusal(
        {"postgresql": "55000"},
        after=refusing(*VOTER, more=" USING ERRCODE = 'object_not_in_prerequisite_state'"),
    ),
    # To PostgreSQL that is a serialization failure, which passes.
    "trigger with a code of another database's": Refusal(
        {"mariadb": "40001"}, after=refusing(*VOTER, more=", MYSQL_ERRNO = 40001")
    ),
    "trigger that leaves the row": Refusal(
        IN_SQLITE, after=refusing(*VOTER, sqlite="AFTER {} FAIL")
    ),
    "trigger that rolls back": Refusal(
        IN_SQLITE, after=refusing(*VOTER, sqlite="BEFORE {} ROLLBACK")
    ),
    "trigger of the item": Refusal(
        TRIGGER, after=refusing("item", "NEW.id = 9", "closed", write="UPDATE")
    ),
    "no such poll": Refusal(TRIGGER, after=refusing(*VOTER, "no such poll")),
    "trigger at the commit": Refusal(
        {"postgresql": "P0001"},
        after={
            "postgresql": [
                refusing(*VOTER)["postgresql"][0],
                "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON vote DEFERRABLE INITIALLY "
                "DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
            ]
        },
    ),
    "check": Refusal({**OF_CHECK, "mariadb": "4025", "mysql": "3819"}, tables=vote_tables(CHECK)),
    "unknown person": Refusal({**OF_KEY, "mariadb": "1452"}, tables=vote_tables(KNOWN, *PERSONS)),
    "unknown person at the commit": Refusal(
        OF_KEY, tables=vote_tables(KNOWN + AT_COMMIT, *PERSONS)
    ),
    "domain": Refusal(
        {"postgresql": "23514"},
        tables=vote_tables(
            "", "CREATE DOMAIN voter AS bigint CHECK (value <> 13)", user_id="voter"
        ),
    ),
    "narrow integer": Refusal(
        {"postgresql": "22003", "mariadb": "1264"},
        tables=vote_tables(user_id="INTEGER"),
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
    """The refusals that each database knows, with each strategy."""
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
    triggers = refusing("vote_anonymous", "NEW.op_id = 'bad'", name="refuse_op")
    run(sides, *triggers[sides.dialect])
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
    key = "NEW.`key`" if sides.dialect == "mariadb" else "NEW.key"
    run(sides, *refusing("hotcount_slot", f"{key} = 'bad'")[sides.dialect])
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
