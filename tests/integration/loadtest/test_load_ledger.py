"""The ledger that other load generators write: parts of processes, and the one that merge makes."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import hotcount
import pytest
from hotcount import _load_frames as frames
from hotcount._load_ledger import LEDGER, READ, UNVOTE, VOTE, LedgerPart, main, merge

from tests.support.load_generator import FAILED, OK, SENT, UNKNOWN, read_ledger


def test_merged_parts_have_all_calls_in_the_order_of_their_sending(tmp_path: Path) -> None:
    one, other = LedgerPart(tmp_path, exact=True), LedgerPart(tmp_path, exact=True)
    first = one.begin(VOTE, 7, 1, 1, resent=False)
    second = other.begin(UNVOTE, 7, 2, 0, resent=False)
    one.begin(VOTE, 8, 1, 1, resent=True)  # Its process is killed in the call.
    fourth = other.begin(READ, 7, 0, 0, resent=False)
    fifth = other.begin(VOTE, 9, 1, 1, resent=False)
    other.end(fourth, frames.Told(frames.OK, frames.TOLD_COUNT, 5))
    other.end(second, frames.Told(frames.FAILED))
    one.end(first, frames.Told(frames.OK, frames.TOLD_CAST | frames.CHANGED, 1, 0))
    other.end(fifth, frames.Told(frames.UNKNOWN))

    assert merge(tmp_path, {}) == 5
    writes = read_ledger(tmp_path / LEDGER)
    assert [(w.item, w.user, w.value, w.kind, w.status) for w in writes] == [
        (7, 1, 1, VOTE, OK),
        (7, 2, 0, UNVOTE, FAILED),
        (8, 1, 1, VOTE, SENT),
        (9, 1, 1, VOTE, UNKNOWN),
    ]
    assert writes[0].sent_ns == 0
    assert 0 < writes[1].sent_ns <= writes[1].done_ns < writes[0].done_ns
    assert writes[2].done_ns == 0
    (read,) = read_ledger(tmp_path / LEDGER, reads=True)
    assert (read.item, read.status, read.returned) == (7, OK, 5)


def test_a_part_grows_beyond_its_first_room(tmp_path: Path) -> None:
    part = LedgerPart(tmp_path, exact=False)
    for user in range(20_000):
        part.end(part.begin(VOTE, 1, user, 1, resent=False), frames.Told(frames.OK))
    assert merge(tmp_path, {}) == 20_000
    assert [w.user for w in read_ledger(tmp_path / LEDGER)] == list(range(20_000))


def test_a_vote_that_does_not_fit_stays_wrong_at_the_end_of_the_range(tmp_path: Path) -> None:
    part = LedgerPart(tmp_path, exact=True)
    for told, kept in ((1 << 32, (1 << 31) - 1), (-(1 << 40), -(1 << 31))):
        call = part.begin(VOTE, 1, 1, 1, resent=False)
        part.end(call, frames.Told(frames.OK, frames.TOLD_CAST, told, 1 << 70))
        (path,) = tmp_path.iterdir()
        record = struct.unpack_from("<qqqiBBBBqqqIi", path.read_bytes(), 4096 + 64 * call)
        assert (record[0], record[-1]) == ((1 << 63) - 1, kept)


def test_a_full_disk_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        LedgerPart(tmp_path, exact=True)
    assert list(tmp_path.iterdir()) == []


def test_a_part_whose_process_was_killed_before_its_header_has_no_calls(tmp_path: Path) -> None:
    LedgerPart(tmp_path, exact=True).begin(VOTE, 1, 1, 1, resent=False)
    (tmp_path / "ledger-part-1-ff.bin").touch()
    assert merge(tmp_path, {}) == 1


def test_a_fleet_with_more_items_than_merge_is_told_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = LedgerPart(tmp_path, exact=True)
    for item in (1, 10, 11):
        part.begin(VOTE, item, 1, 1, resent=False)
    arguments = ["merge", str(tmp_path), "--driver", "./driver", "--items"]
    assert main([*arguments, "10"]) == 2
    assert "has a call on item 11; --items 10 says" in capsys.readouterr().err
    assert not (tmp_path / LEDGER).exists()
    assert main([*arguments, "11"]) == 0
    # The audit holds it against run.json.
    assert (tmp_path / LEDGER).read_bytes()[24:32] == (1).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data[:100], "it is shorter than a header"),
        (lambda data: b"HCLEDGER" + data[8:], "is no part of a ledger of version"),
        (lambda data: data[:4100], "speaks of 1 calls and ends before them"),
    ],
    ids=["short", "other", "cut"],
)
def test_a_damaged_part_is_named(damage: object, says: str, tmp_path: Path) -> None:
    LedgerPart(tmp_path, exact=True).begin(VOTE, 1, 1, 1, resent=False)
    (path,) = tmp_path.iterdir()
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(hotcount.ConfigError, match=says) as caught:
        merge(tmp_path, {})
    assert str(path) in str(caught.value)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_folder_is_merged_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    LedgerPart(tmp_path, exact=True).begin(VOTE, 1, 1, 1, resent=False)
    arguments = ["merge", str(tmp_path), "--items", "1", "--driver", "./driver"]
    assert main(arguments) == 0
    assert main(arguments) == 2
    assert "ledger.bin is there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--items", "0", "--driver", "x"], "--items is 0; it takes 1 or more"),
        (["--items", "5", "--driver", " "], "--driver is empty"),
        (["--items", "5", "--driver", "x"], "has no part of a ledger"),
    ],
)
def test_merge_refuses_what_it_cannot_use(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["merge", str(tmp_path), *arguments])
    except SystemExit as refused:
        code = refused.code
    assert code == 2
    assert says in capsys.readouterr().err
