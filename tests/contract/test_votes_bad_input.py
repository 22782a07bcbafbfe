"""What Votes refuse, and the name by which the error says it, with every strategy."""

import uuid
from decimal import Decimal
from typing import Any

import hotcount
import pytest
from hotcount import Database, Votes

from tests.support.votes_strategies import make_votes

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
VALUE_MAX = 2**31 - 1


@pytest.mark.parametrize("bad", ["1", 1.0, True, None, b"1", Decimal(1), uuid.UUID(int=1)])
def test_an_id_of_another_type_is_a_type_error_that_names_it(votes: Votes, bad: Any) -> None:
    for call, argument in (
        (lambda: votes.cast(bad, 7), "item"),
        (lambda: votes.cast(1, bad), "user"),
        (lambda: votes.retract(1, bad), "user"),
        (lambda: votes.count(bad), "item"),
    ):
        with pytest.raises(TypeError, match=f"{argument} must be int, not .*{type(bad).__name__}"):
            call()
    assert int(votes.count(1)) == 0


@pytest.mark.parametrize(
    ("kind", "bad"), [(str, b"a"), (str, 1), (uuid.UUID, "00000000-0000-0000-0000-000000000001")]
)
def test_an_id_of_another_type_than_item_type_is_a_type_error(
    database: hotcount.Database, strategy: str, kind: Any, bad: Any
) -> None:
    votes = make_votes(database, strategy, item_type=kind)
    with pytest.raises(TypeError, match=f"item must be .*, not {type(bad).__name__}"):
        votes.cast(bad, 7)


@pytest.mark.parametrize("bad", [2**63, -(2**63) - 1])
def test_an_id_beyond_64_bits_is_refused_by_name(votes: Votes, bad: int) -> None:
    with pytest.raises(hotcount.ConfigError, match="item"):
        votes.cast(bad, 7)
    with pytest.raises(hotcount.ConfigError, match="user"):
        votes.cast(1, bad)


@pytest.mark.parametrize("bad", [1.0, "1", None, True, Decimal(1)])
def test_a_value_of_another_type_is_a_type_error_that_names_it(votes: Votes, bad: Any) -> None:
    with pytest.raises(TypeError, match=f"value must be int, not .*{type(bad).__name__}"):
        votes.cast(1, 7, bad)


def test_a_value_beyond_64_bits_is_an_overflow(votes: Votes) -> None:
    with pytest.raises(hotcount.CounterOverflowError, match="value"):
        votes.cast(1, 7, 2**63)
    with pytest.raises(hotcount.ConfigError, match="version"):
        votes.cast(1, 7, version=2**63)


OUT_OF_RANGE: list[tuple[str, Any]] = [
    ("max_pending", 0), ("max_pending", 500_001), ("page", 0), ("page", 100_001), ("workers", 0),
    ("workers", 65), ("retention", 0), ("retention", 1e-9), ("interval", -1), ("slots", 0),
    ("slots", 10_001), ("max_age", float("nan")), ("max_batch", 0), ("max_batch", -1),
    ("max_queue", 0), ("max_delay", float("inf")), ("user_type", "int"), ("item_table", ""),
    ("vote_user", "x" * 64),
]  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("strategy", "cached", "'cached' needs cache"),
        ("strategy", "lazy", "'naive', 'slotted', 'batched', 'cached', 'write_behind'"),
        ("cache", "sqlite:///:memory:", "cache"),
        ("item_type", float, "item_type.*int, str or uuid.UUID"),
        *((option, value, option) for option, value in OUT_OF_RANGE),
        ("missing_items", "ignore", "missing_items.*'refuse', 'create'"),
    ],
)
def test_a_bad_option_is_named(database: Database, option: str, value: Any, says: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=says):
        Votes(database, **{option: value})


def test_every_call_takes_a_timeout(votes: Votes) -> None:
    votes.create_tables(timeout=5)
    votes.add_items([4], timeout=5)
    votes.cast(4, 7, timeout=5)
    votes.retract(4, 7, timeout=5)
    votes.cast_many([4], [7], timeout=5)
    assert votes.count(4, timeout=5).value == votes.count_many([4], timeout=5)[0].value == 1
    votes.flush(timeout=5)
    assert votes.reconcile(timeout=5) == []
    for bad in (0, -1, float("nan"), float("inf")):
        with pytest.raises(hotcount.ConfigError, match="timeout"):
            votes.cast(1, 7, timeout=bad)


def test_closed_votes_leave_their_database_open(database: hotcount.Database, strategy: str) -> None:
    with make_votes(database, strategy, items=[1]) as votes:
        votes.cast(1, 7)
    with pytest.raises(hotcount.ClosedError):
        votes.cast(1, 8)
    again = make_votes(database, strategy)
    assert int(again.count(1)) == 1
    database.close()
    with pytest.raises(hotcount.ClosedError):
        again.count(1)


def test_read_url_is_refused_where_there_is_no_replica() -> None:
    for url in ("sqlite:///replica.db", "postgresql://app:secret@host/app"):
        with pytest.raises(
            hotcount.ConfigError, match="read_url must be None with sqlite"
        ) as caught:
            Votes("sqlite:///:memory:", read_url=url)
        assert caught.value.option == "read_url"
        with pytest.raises(hotcount.ConfigError, match="read_url must be None for strategy"):
            Votes("sqlite:///:memory:", "memory://", "cached", read_url=url)
    with pytest.raises(hotcount.ConfigError, match="read_url is empty"):
        Votes("sqlite:///:memory:", read_url="")


@pytest.mark.parametrize("bad", [0, 0.09, 3601, -1])
def test_read_max_lag_out_of_bounds_is_refused_by_name(bad: float) -> None:
    with pytest.raises(hotcount.ConfigError, match="read_max_lag"):
        Votes("sqlite:///:memory:", read_max_lag=bad)
