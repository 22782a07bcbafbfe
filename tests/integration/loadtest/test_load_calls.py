"""hotcount.load.run and compare: DataFrames, verdicts and thresholds; and tables that fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hotcount import load, report
from hotcount.errors import ConfigError, UnavailableError

from tests.support.load_generator import SMALL, run_json

# In memory, where a busy disk stops nobody.
QUICK: dict[str, Any] = {"duration": "200ms", "warmup": 0, "workers": 8, "items": 200}


def test_a_run_is_a_row_with_its_verdict() -> None:
    frame = load.run("memory", threshold=["lost==0", "rate>=1"], **QUICK)
    (row,) = frame.to_dict("records")
    assert (row["strategy"], row["verdict"], row["reasons"]) == ("memory", "passed", "")
    assert row["writes_per_s"] > 0
    assert row["p99_ms"] >= row["p50_ms"] > 0
    assert (row["lost"], row["doubled"], row["without_success"]) == (0, 0, 0)
    missed = load.run("memory", threshold="rate>=99M", **QUICK)
    assert list(missed.verdict) == ["missed"]
    assert missed.reasons[0].startswith("threshold rate>=99M: ")


def test_a_comparison_is_a_row_for_each_strategy_and_can_be_kept(tmp_path: Path) -> None:
    out = tmp_path / "kept"
    frame = load.compare(("memory", "memory/ttl"), rounds=2, out=out, no_best=True, **QUICK)
    assert list(frame.strategy) == ["memory", "memory/ttl", "memory/again"]
    assert list(frame.reference) == [False, False, True]
    assert frame.ratio[0] == 1
    assert (frame.ratio_min <= frame.ratio).all()
    kept = report.read(out).rows()
    assert [row["strategy"] for row in kept] == list(frame.strategy)
    assert [row["writes_per_s"] for row in kept] == list(frame.writes_per_s)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"speed": 3}, "unknown option '--speed=3'"),
        ({"threshold": "p99"}, "'p99' is no threshold"),
        ({"threshold": 5}, "'5' is no threshold"),
        ({"threshold": ["p99<1s", ""]}, "'' is no threshold"),
        ({"json": True}, "leave out json"),
        ({"each": True, "help": True}, "leave out each, help"),
        ({"strategy": ""}, "--strategies is empty"),
        ({"item_table": "post"}, "--item-table: name the database"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load.run(**options)


def test_a_server_that_is_away_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="redis"):
        load.run("redis", redis=f"unix://{tmp_path}/no.sock", **QUICK)


def test_a_missed_threshold_ends_the_command_with_1() -> None:
    small = ["-s", "memory", *SMALL, "-d", "200ms"]
    code, document = run_json("run", *small, "--threshold", "rate>=1", "--threshold", "rate>=99M")
    assert (code, document["conclusion"]) == (1, "missed")
    assert [one["met"] for one in document["thresholds"]] == [True, False]
    assert document["audit"]["passed"]
