"""SlottedCounter on servers: an application's own table, adaptive slots, what columns refuse."""

from __future__ import annotations

from typing import Any, Literal

import hotcount
import pytest
import sqlalchemy as sa

from tests.support.eventually import eventually
from tests.support.postgres_votes import in_background
from tests.support.sqlalchemy_side import BothSides
from tests.support.together import together

INT64_MAX = 2**63 - 1


def likes(sides: BothSides, key_type: str, **options: Any) -> hotcount.SlottedCounter:
    """Over a table of the application's own."""
    surrogate = {
        "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "postgresql": "SERIAL PRIMARY KEY",
        "mariadb": "INT PRIMARY KEY AUTO_INCREMENT",
    }[sides.dialect]
    sides.run(
        f"CREATE TABLE post_likes (id {surrogate}, post_id {key_type} NOT NULL, "
        "slot INT NOT NULL, likes INT, UNIQUE (post_id, slot))"
    )
    return open_likes(sides, **options)


def open_likes(sides: BothSides, **options: Any) -> hotcount.SlottedCounter:
    names: Any = {"table": "post_likes", "key_column": "post_id", "count_column": "likes"}
    return hotcount.SlottedCounter(sides.database, **names, **options)


@pytest.mark.parametrize("slots", [100, "adaptive"])
@pytest.mark.parametrize("slot_choice", ["sticky", "random"])
def test_adds_to_slots_that_are_named_go_to_those_rows(
    sides: BothSides, slots: int | Literal["adaptive"], slot_choice: Literal["sticky", "random"]
) -> None:
    """The worked example of the slotted counter pattern, call for call: slots 0, 36 and 0."""
    counter = likes(sides, "VARCHAR(200)", slots=slots, slot_choice=slot_choice)
    steps = {0: [(0, 1)], 36: [(0, 1), (36, 1)]}
    for slot, rows in steps.items():
        counter.add("/home", slot=slot)
        assert sides.run("SELECT slot, likes FROM post_likes ORDER BY slot") == rows
    counter.add("/home", slot=0)
    assert sides.run("SELECT slot, likes FROM post_likes ORDER BY slot") == [(0, 2), (36, 1)]
    together(lambda index: counter.add("/home", slot=index % 100), 64)
    assert sides.run("SELECT COUNT(*), MIN(likes), MAX(likes) FROM post_likes") == [(64, 1, 3)]
    assert counter.get("/home") == 67


@pytest.mark.parametrize("key_type", ["INT", "VARCHAR(200)"])
def test_a_table_with_an_id_and_null_counts_is_counted_as_it_is(
    sides: BothSides, key_type: str
) -> None:
    """Slots 0, 36, 0: a row of 2 and a row of 1, three likes."""
    counter = likes(sides, key_type, slots=100, slot_choice="random")
    upsert = "ON CONFLICT (post_id, slot) DO UPDATE SET likes = post_likes.likes + 1"
    if sides.dialect == "mariadb":
        upsert = "ON DUPLICATE KEY UPDATE likes = likes + 1"
    for slot in (0, 36, 0):
        sides.run(f"INSERT INTO post_likes (post_id, slot, likes) VALUES (7, {slot}, 1) {upsert}")
    assert counter.get("7") == 3
    sides.run("INSERT INTO post_likes (post_id, slot, likes) VALUES (8, 0, NULL)")
    for _ in range(20):
        counter.add("7")
    counter.add_many({"7": 1, "8": 1, "9": 1, "10": 1, "11": 1})
    assert list(counter.get_many(["7", "8", "9", "12"])) == [24, 1, 1, 0]
    assert sides.run("SELECT MIN(slot) >= 0 AND MAX(slot) < 100 FROM post_likes")[0][0]
    assert counter.compact("7") == 24
    assert sides.run("SELECT slot, likes FROM post_likes WHERE post_id = '7'") == [(0, 24)]
    assert counter.reset("8") == 1
    # A null where others expect a number: counted as 0.
    narrow = open_likes(sides, slots=1)
    sides.run("INSERT INTO post_likes (post_id, slot, likes) VALUES (13, 0, NULL)")
    narrow.add("13", 2)
    assert narrow.get("13") == 2


def test_updates_burn_no_values_of_a_surrogate_id(server: BothSides) -> None:
    counter = likes(server, "INT", slots=1)
    for _ in range(50):
        counter.add("1")
    counter.add("2")
    ids = [row[0] for row in server.run("SELECT id FROM post_likes ORDER BY id")]
    assert ids[1] - ids[0] < 5


def test_a_column_of_32_bits_overflows_by_name_and_nothing_changes(server: BothSides) -> None:
    counter = likes(server, "INT", slots=1)
    counter.add("1", 2**31 - 1)
    with pytest.raises(hotcount.CounterOverflowError, match="1"):
        counter.add("1")
    with pytest.raises(hotcount.CounterOverflowError):
        counter.add("2", 2**31)
    assert list(counter.get_many(["1", "2"])) == [2**31 - 1, 0]


def test_sums_beyond_64_bits_are_errors_of_get_compact_and_reset(sides: BothSides) -> None:
    counter = hotcount.SlottedCounter(sides.database, slots=10_000)
    counter.create_table()
    name = "`key`" if sides.dialect == "mariadb" else '"key"'
    sides.run(
        f"INSERT INTO hotcount_slot ({name}, slot, count) VALUES ('k', 0, {INT64_MAX}), ('k', 1, 1)"
    )
    for call in (counter.get, counter.compact, counter.reset):
        with pytest.raises(hotcount.CounterOverflowError, match="k"):
            call("k")
    assert sides.run("SELECT COUNT(*) FROM hotcount_slot") == [(2,)]


def test_keys_are_compared_byte_by_byte_on_servers(server: BothSides) -> None:
    counter = hotcount.SlottedCounter(server.database)
    counter.create_table()
    keys = ["a", "A", "á", "a ", "a\u0301", "ß", "ss", "x" * 300, "x" * 1000, "\U0001f600"]
    counter.add_many({key: number for number, key in enumerate(keys, 1)})
    assert list(counter.get_many(keys)) == list(range(1, len(keys) + 1))
    with pytest.raises(hotcount.ConfigError, match="NUL"):
        counter.add("a\0b")
    if server.dialect == "postgresql":
        with pytest.raises(hotcount.ConfigError, match="UTF-8"):
            counter.add(b"\xff\xfe")
        with pytest.raises(hotcount.ConfigError, match="op_id"):
            counter.add("a", op_id=b"\xff\xfe")
    else:
        counter.add(b"\xff\xfe", 7)
        counter.add(b"\xff\xfe", 7, op_id=b"\xff")
        assert counter.get(b"\xff\xfe") == 14


def test_adaptive_slots_grow_where_a_row_is_held_and_only_there(server: BothSides) -> None:
    counter = hotcount.SlottedCounter(server.database, slots="adaptive")
    counter.create_table()
    for _ in range(5):
        counter.add("k")
    assert counter.slots == 1
    name = "`key`" if server.dialect == "mariadb" else '"key"'
    held = sa.text(f"SELECT count FROM hotcount_slot WHERE {name} = 'k' FOR UPDATE")
    with server.engine.connect() as other:
        other.execute(held)
        adding = in_background(lambda: counter.add("k"))
        # It looks, finds the row held, and doubles; then it may or may not have to wait.
        eventually(lambda: counter.slots == 2)
        other.rollback()
        assert adding() is None
    assert counter.slots == 2
    assert counter.get("k") == 6


def test_adaptive_slots_have_a_bound(server: BothSides) -> None:
    counter = hotcount.SlottedCounter(server.database, slots="adaptive")
    counter.create_table()
    counter.resize(64)
    name = "`key`" if server.dialect == "mariadb" else '"key"'
    rows = ", ".join(f"('k', {slot}, 0)" for slot in range(200))
    server.run(f"INSERT INTO hotcount_slot ({name}, slot, count) VALUES {rows}")
    held = sa.text(f"SELECT count FROM hotcount_slot WHERE {name} = 'k' FOR UPDATE")
    for expected in (100, 100):
        with server.engine.connect() as other:
            other.execute(held)
            with pytest.raises(hotcount.DeadlineError):
                counter.add("k", timeout=0.3)
            assert counter.slots == expected
            other.rollback()
    assert counter.get("k") == 0


def test_many_keys_in_one_call_and_across_calls_sum_exactly(server: BothSides) -> None:
    """Statements of 256, 64, 16, 4 and single rows, for new rows and for old ones."""
    counter = hotcount.SlottedCounter(server.database)
    counter.create_table()
    amounts = {f"k{number}": number - 170 for number in range(341 + 3)}
    for turn in (1, 2):
        counter.add_many(amounts)
        assert list(counter.get_many(list(amounts))) == [turn * n for n in amounts.values()]
    result = counter.add_many({**amounts, "k5": INT64_MAX, "k0": 1}, errors="return")
    assert result.errors == {}
    result = counter.add_many({"k1": 1, "k5": INT64_MAX, "k2": 1, "k3": 1}, errors="return")
    assert list(result.errors) == [1]
    assert counter.get("k1") == 3 * amounts["k1"] + 1
