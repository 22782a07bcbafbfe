"""What Votes promise, with every strategy, on every database."""

import time
import uuid
from itertools import chain
from typing import Any

import hotcount
import pytest
from hotcount import Cast, Database, Votes

from tests.support.together import THREADS, together
from tests.support.votes_strategies import is_consistent, make, make_votes

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
VALUE_MAX = 2**31 - 1

# A change between two caches is no change of strategy.
TAKERS_OVER = ["naive", "slotted", "batched", "cached"]


@pytest.mark.cast_writes
def test_stats_say_what_was_voted_and_how_long_it_took(votes: Votes) -> None:
    before = votes.stats()
    assert (before["votes"], before["failed_votes"], before["median_call_s"]) == (0, 0, 0.0)
    votes.cast_many([1, 1, 2], [7, 8, 7])
    votes.cast(1, 7)
    with pytest.raises(hotcount.IntegrityError):
        votes.cast(99, 7)
    stats = votes.stats()
    assert (stats["votes"], stats["failed_votes"]) == (4, 1)
    assert 0 < stats["median_call_s"] <= stats["p99_call_s"] <= stats["longest_call_s"] < 60
    votes.flush()
    stats = votes.stats()
    assert (stats["pending_rows"], stats["held_items"], stats["refused_items"]) == (0, 0, {})
    assert (stats["waiting_votes"], stats["held_votes"], stats["fold_error"]) == (0, 0, "")


@pytest.mark.cast_writes
def test_a_vote_counts_once_however_often_it_is_cast(votes: Votes) -> None:
    assert votes.cast(1, 7) == Cast(counted=True, changed=True, previous=0, value=1)
    for _ in range(3):
        assert votes.cast(1, 7) == Cast(counted=True, changed=False, previous=1, value=1)
    assert int(votes.count(1)) == 1
    assert int(votes.count(2)) == 0


def test_votes_of_many_users_at_once_are_all_counted(votes: Votes) -> None:
    each = 4
    casts = together(lambda index: [votes.cast(1, index * each + k) for k in range(each)])
    assert all(
        cast.counted and (cast.changed or cast.pending) for cast in chain.from_iterable(casts)
    )
    assert int(votes.count(1)) == THREADS * each
    assert is_consistent(votes)


@pytest.mark.cast_writes
def test_of_one_vote_cast_by_many_threads_exactly_one_changes_the_count(votes: Votes) -> None:
    casts = together(lambda _: votes.cast(1, 7))
    assert sum(cast.changed for cast in casts) == 1
    assert all(cast.value == 1 for cast in casts)
    assert int(votes.count(1)) == 1


@pytest.mark.cast_writes
def test_changes_that_callers_were_told_of_add_up_to_the_count(votes: Votes) -> None:
    def work(index: int) -> int:
        moved = 0
        for k in range(4):
            user = (index + k) % 8
            cast = votes.cast(1, user, value=1 + index % 3) if k % 2 else votes.retract(1, user)
            moved += cast.value - cast.previous if cast.changed else 0
        return moved

    assert sum(together(work)) == int(votes.count(1))
    assert is_consistent(votes)


@pytest.mark.cast_writes
def test_a_vote_may_be_retracted_and_cast_again(votes: Votes) -> None:
    votes.cast(1, 7)
    assert votes.retract(1, 7) == Cast(counted=False, changed=True, previous=1, value=0)
    assert votes.retract(1, 7) == Cast(counted=False, changed=False, previous=0, value=0)
    assert int(votes.count(1)) == 0
    assert votes.cast(1, 7).changed
    assert int(votes.count(1)) == 1
    assert votes.retract(2, 7) == Cast(counted=False, changed=False, previous=0, value=0)
    assert int(votes.count(2)) == 0
    assert is_consistent(votes)


@pytest.mark.cast_writes
def test_a_vote_may_weigh_and_change_its_weight(votes: Votes) -> None:
    assert votes.cast(1, 7, 5).previous == 0
    assert votes.cast(1, 7, -2) == Cast(counted=True, changed=True, previous=5, value=-2)
    votes.cast(1, 8, value=10)
    assert int(votes.count(1)) == 8
    assert votes.cast(1, 7, 0) == Cast(counted=False, changed=True, previous=-2, value=0)
    assert int(votes.count(1)) == 10


def test_the_largest_votes_are_counted_exactly(votes: Votes) -> None:
    votes.cast(1, 7, VALUE_MAX)
    votes.cast(1, 8, VALUE_MAX)
    votes.cast(2, 7, -VALUE_MAX)
    assert [int(count) for count in votes.count_many([1, 2])] == [2 * VALUE_MAX, -VALUE_MAX]
    assert is_consistent(votes)


@pytest.mark.parametrize("bad", [VALUE_MAX + 1, -VALUE_MAX - 1, INT64_MAX, INT64_MIN])
def test_a_value_that_could_take_a_count_out_of_64_bits_is_refused(votes: Votes, bad: int) -> None:
    with pytest.raises(hotcount.ConfigError, match="value"):
        votes.cast(1, 7, bad)
    with pytest.raises(hotcount.ConfigError, match="value"):
        votes.cast(1, None, bad, op_id="x")
    with pytest.raises(hotcount.BatchError) as caught:
        votes.cast_many([1, 2], [7, 7], [bad, 1])
    assert [type(error) for error in caught.value.errors.values()] == [hotcount.ConfigError]
    assert [int(count) for count in votes.count_many([1, 2])] == [0, 1]


@pytest.mark.cast_writes
def test_a_vote_is_applied_only_with_a_higher_version(votes: Votes) -> None:
    assert votes.cast(1, 7, 1, version=5).changed
    assert votes.retract(1, 7, version=7) == Cast(False, True, 1, 0)
    # A cast that was stuck on its way does not undo the later retract.
    assert votes.cast(1, 7, 1, version=6) == Cast(False, False, 0, 0)
    assert votes.cast(1, 7, 1, version=7) == Cast(False, False, 0, 0)
    assert int(votes.count(1)) == 0
    assert votes.cast(1, 7, 3, version=8) == Cast(True, True, 0, 3)
    assert int(votes.count(1)) == 3


@pytest.mark.cast_writes
def test_of_versions_that_arrive_in_any_order_the_highest_stays(votes: Votes) -> None:
    together(lambda index: votes.cast(1, 7, value=100 + index, version=index))
    assert int(votes.count(1)) == 100 + THREADS - 1
    assert is_consistent(votes)


@pytest.mark.cast_writes
def test_a_vote_for_an_item_that_does_not_exist_is_refused_and_leaves_nothing(votes: Votes) -> None:
    with pytest.raises(hotcount.IntegrityError, match="item 99"):
        votes.cast(99, 7)
    votes.add_items([99])
    assert int(votes.count(99)) == 0
    assert votes.cast(99, 7).changed


def test_missing_items_create_makes_the_item(database: hotcount.Database, strategy: str) -> None:
    votes = make_votes(database, strategy, missing_items="create")
    together(lambda index: votes.cast(42, index))
    assert int(votes.count(42)) == THREADS
    assert is_consistent(votes)


def test_items_and_tables_that_exist_stay_as_they_are(votes: Votes) -> None:
    votes.cast(1, 7)
    votes.add_items([1, 4])
    assert [int(count) for count in votes.count_many([1, 4])] == [1, 0]
    votes.cast(1, 7)
    votes.create_tables()
    assert int(votes.count(1)) == 1


@pytest.mark.parametrize(
    ("kind", "ids"),
    [
        pytest.param(str, ["a", "A", "größe", "x" * 1000], id="str"),
        pytest.param(uuid.UUID, [uuid.UUID(int=n) for n in range(1, 5)], id="uuid"),
        pytest.param(int, [INT64_MIN, -1, 0, INT64_MAX], id="int"),
    ],
)
def test_ids_of_every_type_come_back_as_they_went_in(
    database: hotcount.Database, strategy: str, kind: Any, ids: list[Any]
) -> None:
    votes = make_votes(database, strategy, item_type=kind, user_type=kind, items=ids)
    casts = votes.cast_many(ids * 2, ids + ids[::-1])
    assert [cast.changed or cast.pending for cast in casts] == [True] * 8
    assert [int(count) for count in votes.count_many(ids)] == [2] * 4
    assert is_consistent(votes)


def test_item_and_user_have_types_of_their_own(database: hotcount.Database, strategy: str) -> None:
    votes = make_votes(database, strategy, item_type=str, user_type=uuid.UUID, items=["article"])
    votes.cast("article", uuid.uuid4())
    assert int(votes.count("article")) == 1


def test_another_schema_is_used_by_its_names(database: hotcount.Database, strategy: str) -> None:
    names = {
        "item_table": 'po"sts', "item_id": "group", "item_count": "li'kes",
        "vote_table": "order", "vote_item": "select", "vote_user": "who; --",
    }  # fmt: skip
    votes = make_votes(database, strategy, **names, items=[1])
    votes.cast(1, 7)
    assert int(votes.count(1)) == 1
    assert is_consistent(votes)


def test_a_count_says_when_and_where_it_was_read(votes: Votes, strategy: str) -> None:
    votes.cast(1, 7)
    before = time.time()
    # Of write_behind others may wait.
    in_sql, in_cache = (1, strategy != "write_behind", "sql", 0), (1, False, "cache", 0)
    for count, expected in (
        (votes.count(1), in_cache if strategy == "cached" else in_sql),
        (votes.count(1, consistency="exact"), in_sql),
        (votes.count_many([1], consistency="exact")[0], in_sql),
    ):
        assert (count.value, count.exact, count.source, count.pending) == expected
        assert before - 0.001 <= count.as_of <= time.time() + 0.001
    with pytest.raises(hotcount.ConfigError, match="consistency"):
        votes.count(1, consistency="maybe")  # type: ignore[arg-type]


def test_count_many_answers_in_order_with_zero_for_no_votes(votes: Votes) -> None:
    assert [int(count) for count in votes.count_many([2, 1000])] == [0, 0]
    assert int(votes.count(1000)) == 0
    votes.cast_many([1, 1, 3], [1, 2, 3])
    counts = votes.count_many([3, 1, 3, 2])
    assert [int(count) for count in counts] == [1, 2, 1, 0]
    assert list(counts.value) == [1, 2, 1, 0]
    assert list(counts.exact) == [votes.contract().exact] * 4
    assert counts.errors == {}


def test_a_reader_never_sees_a_count_fall_or_pass_what_was_cast(votes: Votes) -> None:
    def work(index: int) -> list[int]:
        if index % 2:
            votes.cast(1, index)
            return []
        return [int(votes.count(1)) for _ in range(10)]

    for seen in together(work):
        assert seen == sorted(seen)
        assert all(0 <= count <= THREADS // 2 for count in seen)
    assert int(votes.count(1)) == THREADS // 2


def test_a_vote_is_in_the_count_when_cast_returns(votes: Votes) -> None:
    for user in range(5):
        votes.cast(1, user)
        assert int(votes.count(1)) == user + 1


def test_reconcile_finds_nothing_where_nothing_is_wrong(votes: Votes) -> None:
    votes.cast_many([1, 1, 2], [1, 2, 3])
    votes.retract(1, 2)
    votes.flush()
    assert votes.reconcile() == []
    assert votes.reconcile([1, 2]) == []
    assert votes.reconcile([], dry_run=True) == []


@pytest.mark.parametrize("after", TAKERS_OVER)
def test_another_strategy_goes_on(database: hotcount.Database, strategy: str, after: str) -> None:
    before = make_votes(database, strategy, items=[1, 2])
    before.cast_many([1, 1, 2], [1, 2, 3], [1, 5, 1])
    before.retract(1, 2)
    before.flush()  # Nothing is taken over from one whose votes wait.
    votes = make_votes(database, after)
    assert is_consistent(votes)
    assert [int(count) for count in votes.count_many([1, 2])] == [1, 1]
    votes.cast(1, 2, 5)
    votes.cast(1, 3)
    assert int(votes.count(1)) == 7
    assert is_consistent(votes)


@pytest.mark.parametrize("after", TAKERS_OVER)
def test_a_replaced_strategy_counts_no_more(database: Database, strategy: str, after: str) -> None:
    before = make_votes(database, strategy, items=[1])
    before.cast(1, 1)
    before.flush()
    votes = make_votes(database, after)
    # Either it still counts rightly, or it is refused: never a vote without its count.
    expected = 1
    places = {"naive": "item", "cached": "cache", "slotted": "journal", "batched": "journal"}
    places["write_behind"] = "streams"
    if votes.schema().find("_journal") < 0:  # SQLite's batched counts in the item's row.
        places |= {"slotted": "cells", "batched": "item"}
    if places[strategy] == places[after]:
        before.cast(1, 2)
        expected = 2
    else:
        with pytest.raises(hotcount.ConfigError, match="create_tables"):
            before.cast(1, 2)
    assert int(votes.count(1)) == expected
    assert sum(votes.cast_many([1, 1, 1], [1, 2, 3]).changed) == 3 - expected
    assert int(votes.count(1)) == 3
    assert is_consistent(votes)


def test_a_strategy_says_to_create_tables_first(database: hotcount.Database, strategy: str) -> None:
    votes = make(database, strategy)
    with pytest.raises(hotcount.DatabaseError, match=r"(no such table|exist).*create_tables"):
        votes.cast(1, 7)
    with pytest.raises(hotcount.DatabaseError, match=r"(no such table|exist).*create_tables"):
        votes.count(1)
    assert votes.stats()["failed_votes"] == 1


def test_flush_reports_that_no_acknowledged_vote_is_at_risk(votes: Votes) -> None:
    votes.cast_many([1, 2], [7, 7])
    report = votes.flush(timeout=5)
    assert (report.pending, report.at_risk) == (0, 0)
    assert votes.flush().acked == 0


@pytest.mark.cast_writes
def test_the_contract_says_what_an_acknowledgement_means(votes: Votes, strategy: str) -> None:
    contract = votes.contract()
    assert contract.strategy == strategy
    assert (contract.durable, contract.exact) == (True, strategy != "cached")
    assert "committed" in contract.acknowledged
    assert contract.may_lose.startswith("nothing acknowledged")
