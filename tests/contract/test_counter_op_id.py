"""An add with an op_id is counted once, however often and by whomever it is retried."""

import time
import uuid

import hotcount
import pytest

from tests.support.limiters import made_at
from tests.support.stores import Store
from tests.support.together import together

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


def test_a_repeated_op_id_of_a_key_is_counted_once_and_answers_the_same(
    counter: hotcount.Counter,
) -> None:
    assert counter.add("k", 5, op_id="a") == 5
    counter.add("k", 100)
    assert counter.add("k", 5, op_id="a") == 5
    assert counter.add("k", 5, op_id=b"b") == 110
    assert counter.add("k", 5, op_id="b") == 110, "a str and its bytes are one op_id"
    assert counter.get("k") == 110
    assert counter.add("j", 5, op_id="a") == 5
    assert counter.add("another", 7, op_id="a") == 7
    assert counter.add("{j}", 9, op_id="a") == 9
    assert counter.add("j", 5, op_id="a") == 5


@pytest.mark.parametrize("ttl", [None, 600])
def test_many_threads_count_each_op_once(counter_store: Store, ttl: float | None) -> None:
    counter = hotcount.Counter(counter_store, ttl=ttl)
    ids = [hotcount.new_op_id() for _ in range(20)] + [f"op {number}" for number in range(20)]

    def work(index: int) -> dict[str, int]:
        order = ids[index % 40 :] + ids[: index % 40]
        return {op_id: counter.add("k", 1, op_id=op_id) for op_id in order}

    answers = together(work, 64)
    assert all(mine == answers[0] for mine in answers), "a retry was answered with another value"
    assert sorted(answers[0].values()) == list(range(1, 41))
    assert counter.get("k") == 40


def test_an_op_id_is_remembered_for_op_keep_and_then_forgotten(counter_store: Store) -> None:
    counter = hotcount.Counter(counter_store, op_keep=1)
    begun = time.monotonic()
    assert counter.add("k", op_id="a") == 1
    tries = 0
    while True:
        answer = counter.add("k", op_id="a")
        if time.monotonic() - begun > 0.98:
            break  # From here on it may be forgotten.
        assert answer == 1
        tries += 1
    assert tries > 0
    value = counter.get("k")
    time.sleep(2.05)  # Time is what this is about.
    assert counter.add("k", op_id="a") == value + 1


def test_a_retry_is_known_however_much_was_added_meanwhile(counter_store: Store) -> None:
    # Results go elsewhere after each op_keep.
    counter = hotcount.Counter(counter_store, op_keep=1)
    begun = time.monotonic()
    last: list[tuple[float, str, int]] = []
    while time.monotonic() - begun < 2.5:
        op_id = hotcount.new_op_id()
        before = time.monotonic()
        last.append((before, op_id, counter.add("k", op_id=op_id)))
        for made, known, value in last[::50]:
            answer = counter.add("k", op_id=known) if time.monotonic() - made < 0.5 else None
            if time.monotonic() - made < 0.95 and answer is not None:
                assert answer == value
        last = [entry for entry in last if time.monotonic() - entry[0] < 0.5]
    assert counter.get("k") > 0


def test_reset_does_not_forget_what_was_counted(counter: hotcount.Counter) -> None:
    assert counter.add("k", 5, op_id="a") == 5
    assert counter.reset("k") == 5
    assert counter.add("k", 5, op_id="a") == 5, "the retry of an add that was counted"
    assert counter.get("k") == 0
    assert counter.add("k", 2, op_id="b") == 2


def test_the_end_of_a_counters_life_does_not_forget_what_was_counted(counter_store: Store) -> None:
    counter = hotcount.Counter(counter_store, ttl=0.05)
    assert counter.add("k", 5, op_id="a") == 5
    time.sleep(0.06)
    assert counter.add("k", 5, op_id="a") == 5
    assert counter.get("k") == 0
    assert counter.ttl("k") is None


def test_a_life_comes_with_the_value_and_is_not_extended(counter_store: Store) -> None:
    counter = hotcount.Counter(counter_store, ttl=600)
    counter.add("k", op_id="a")
    left = counter.ttl("k") or 0
    assert 599 < left <= 600
    counter.add("k", op_id="b")
    assert 0 < (counter.ttl("k") or 0) <= left
    hotcount.Counter(counter_store).add("old")
    assert counter.add("old", op_id="a") == 2
    assert counter.ttl("old") is not None, "healed"


def test_numbers_are_exact_to_the_last_bit(counter: hotcount.Counter) -> None:
    assert counter.add("k", 2**53, op_id="a") == 2**53
    assert counter.add("k", 1, op_id="b") == 2**53 + 1
    assert counter.add("k", 1, op_id="b") == 2**53 + 1
    assert counter.add("k", INT64_MAX - 2**53 - 1, op_id="c") == INT64_MAX
    assert counter.add("k", INT64_MIN, op_id="d") == -1
    assert counter.add("k", INT64_MIN + 1, op_id="e") == INT64_MIN
    again = [counter.add("k", 0, op_id=op_id) for op_id in "abcde"]
    assert again == [2**53, 2**53 + 1, INT64_MAX, -1, INT64_MIN]
    assert counter.get("k") == INT64_MIN


@pytest.mark.parametrize("ttl", [None, 600])
def test_an_overflow_is_not_remembered(counter_store: Store, ttl: float | None) -> None:
    counter = hotcount.Counter(counter_store, ttl=ttl)
    counter.add("k", INT64_MAX)
    with pytest.raises(hotcount.CounterOverflowError):
        counter.add("k", 1, op_id="a")
    counter.reset("k")
    assert counter.add("k", 1, op_id="a") == 1


@pytest.mark.parametrize(
    "op_id", ["x", b"\x00", b"\xff\xfe" * 500, "é" * 500, "a b\r\nc", "{", "}{", ":", "0"]
)
def test_any_bytes_make_an_op_id(counter: hotcount.Counter, op_id: str | bytes) -> None:
    assert counter.add("k", 5, op_id=op_id) == 5
    assert counter.add("k", 5, op_id=op_id) == 5
    assert counter.add("k", 1, op_id="another") == 6


@pytest.mark.parametrize("bad", ["", "x" * 1001])
def test_an_empty_or_too_long_op_id_is_refused(counter: hotcount.Counter, bad: str) -> None:
    with pytest.raises(hotcount.ConfigError, match="op_id"):
        counter.add("k", op_id=bad)
    with pytest.raises(TypeError, match="op_id must be str or bytes, not int"):
        counter.add("k", op_id=5)  # type: ignore[arg-type]
    assert counter.get("k") == 0


def test_an_id_that_was_made_too_long_ago_is_refused_and_not_counted(counter_store: Store) -> None:
    counter = hotcount.Counter(counter_store, op_keep=60)
    old = made_at(time.time() - 61)
    with pytest.raises(hotcount.ConfigError, match=f"{old}.*added nothing.*no longer stored"):
        counter.add("k", op_id=old)
    assert counter.get("k") == 0
    assert counter.add("k", op_id=made_at(time.time() - 50)) == 1
    # By its place: a "-7" may stand in the time as well.
    random = f"{old[:14]}4{old[15:]}"
    assert counter.add("k", op_id=random) == 2, "which does not say when"


def test_an_id_that_is_remembered_is_answered_however_old_it_is(counter_store: Store) -> None:
    patient = hotcount.Counter(counter_store, op_keep=600)
    hasty = hotcount.Counter(counter_store, op_keep=1)
    old = made_at(time.time() - 100)
    assert patient.add("k", op_id=old) == 1
    assert hasty.add("k", op_id=old) == 1


def test_an_id_from_too_far_ahead_is_refused(counter_store: Store) -> None:
    counter = hotcount.Counter(counter_store, op_keep=60)
    with pytest.raises(hotcount.ConfigError, match=r"op_id.*ahead.*added nothing"):
        counter.add("k", op_id=made_at(time.time() + 120))
    assert counter.get("k") == 0
    assert counter.add("k", op_id=made_at(time.time() + 30)) == 1, "a clock that is off"


def test_an_id_of_a_clock_that_is_ahead_is_never_counted_twice(counter_store: Store) -> None:
    # Until it is too old by the store's clock it must be remembered, here 1.5 seconds.
    counter = hotcount.Counter(counter_store, op_keep=1)
    ahead = made_at(time.time() + 0.5)
    assert counter.add("k", op_id=ahead) == 1
    begun = time.monotonic()
    refused = False
    while time.monotonic() - begun < 4 and not refused:
        try:
            assert counter.add("k", op_id=ahead) == 1
        except hotcount.ConfigError:
            refused = True
        time.sleep(0.01)  # So that it is not asked thousands of times.
    assert refused
    assert counter.get("k") == 1


def test_counters_that_remember_for_longer_are_not_cut_short(counter_store: Store) -> None:
    hasty = hotcount.Counter(counter_store, op_keep=1)
    patient = hotcount.Counter(counter_store, op_keep=600)
    hasty.add("k", op_id="first")
    assert patient.add("k", op_id="a") == 2
    for number in range(6):
        hasty.add("k", op_id=f"x{number}")
        time.sleep(0.5)  # Through three lives of what the hasty one remembers.
    assert patient.add("k", op_id="a") == 2
    assert patient.get("k") == 8


def test_a_new_op_id_is_a_uuid_of_version_7_with_the_time_in_it() -> None:
    before = int(time.time() * 1000)
    ids = [uuid.UUID(hotcount.new_op_id()) for _ in range(1000)]
    after = int(time.time() * 1000)
    assert all(each.version == 7 and each.variant == uuid.RFC_4122 for each in ids)
    times = [each.int >> 80 for each in ids]
    assert before <= times[0]
    assert times == sorted(times)
    assert times[-1] <= after
    assert all(str(uuid.UUID(text)) == text for text in (hotcount.new_op_id(),))
    batches = together(lambda _: [hotcount.new_op_id() for _ in range(2000)])
    assert len({op_id for batch in batches for op_id in batch}) == 2000 * len(batches)
