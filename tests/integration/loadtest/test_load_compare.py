"""`hotcount load compare` and `diff`: the same verdicts on kept folders as hotcount-load gave.

kept_comparisons.json has four comparisons of 8 rounds, measured by 09b2a7f, with what that program
said of them (`said`) and of two pairs of them (`diffs`). Intervals are of other draws now.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hotcount import ConfigError
from hotcount._load_compare import FIGURES, compare_text, diff, diff_text, with_statistics
from hotcount._load_statistics import paired_ratios, spread_of

KEPT: dict[str, Any] = json.loads(Path(__file__).with_name("kept_comparisons.json").read_text())
COMPARISONS = ("closed", "closed again", "open", "open again")
SAID = ("median", "p", "p_adjusted", "difference")


def values(contender: dict[str, Any], *path: str) -> list[float]:
    found = [trial["result"] for trial in contender["trials"]]
    for name in path:
        found = [each[name] for each in found]
    return found


def comparison(name: str) -> dict[str, Any]:
    """As hotcount-load writes it now: medians, least and most alone."""
    document: dict[str, Any] = copy.deepcopy(KEPT[name])
    for part in document["parts"]:
        part["notes"] = []
        is_open = part["settings"]["rate_per_s"] is not None
        times = "response_us" if is_open else "service_us"
        contenders = [*part["strategies"], *part["references"]]
        named = {each["strategy"]: each for each in contenders}
        best = next((each for each in contenders if each["role"] == "best"), None)
        for each in contenders:
            each |= {"place": "here", "audit": {"passed": True}, "verdict": "passed"}
            each["reasons"] = []
            for rate in ("writes_per_s", "reads_per_s"):
                each[rate] = spread_of(values(each, rate))
            each[times] = {
                f"{share}_by_round": spread_of(values(each, times, share))
                for share in ("p50", "p99")
            }
            for ratio, base, path in (
                ("ratio_to_baseline", named[part["baseline"]], ["writes_per_s"]),
                ("ratio_to_best", best, ["writes_per_s"]),
                ("p99_ratio_to_baseline", is_open and named[part["baseline"]], [times, "p99"]),
            ):
                ratios = paired_ratios(values(each, *path), values(base, *path)) if base else []
                each[ratio] = spread_of(ratios)
    return document


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_kept_comparison_has_the_verdicts_that_it_had(name: str) -> None:
    (part,) = with_statistics(comparison(name))["parts"]
    contenders = [*part["strategies"], *part["references"]]
    for each in contenders:
        for ratio, said in KEPT[name]["parts"][0]["said"][each["strategy"]].items():
            if not said["median"]:
                continue  # It was not compared so.
            found = each[ratio]
            assert found["difference"] is said["difference"], (each["strategy"], ratio)
            for figure in SAID[:3]:
                assert found[figure] == pytest.approx(said[figure], rel=1e-5)
            low, high = found["interval"]
            assert found["min"] <= low <= found["median"] <= high <= found["max"]
        rates = each["writes_per_s"]["interval"]
        made = [trial["result"]["writes_per_s"] for trial in each["trials"]]
        assert min(made) <= rates[0] <= rates[1] <= max(made)


def test_what_has_statistics_keeps_them() -> None:
    document = with_statistics(comparison("closed"))
    document["parts"][0]["strategies"][1]["ratio_to_baseline"]["difference"] = "kept"
    again = with_statistics(document)
    assert again["parts"][0]["strategies"][1]["ratio_to_baseline"]["difference"] == "kept"


def test_the_text_says_what_differs_and_what_is_noise() -> None:
    text = compare_text(with_statistics(comparison("closed")))
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert "x naive" in lines["strategy"]
    assert "95 %" in lines["strategy"]
    assert " 13.7 " in lines["batched"]
    assert "~" not in lines["batched"]
    assert " ~" in lines["slotted"]
    assert "\n  batched: 11.4 times naive@2\n" in text
    few = comparison("closed")
    few["parts"][0]["rounds"] = 2
    for each in [*few["parts"][0]["strategies"], *few["parts"][0]["references"]]:
        del each["trials"][2:]
    text = compare_text(with_statistics(few))
    assert "2 rounds: no difference can be called; that takes 7 or more." in text
    assert "min .. max" in text
    assert " ~ " not in text


@pytest.mark.parametrize("name", COMPARISONS)
def test_the_table_has_100_columns_unless_it_is_wide(name: str) -> None:
    document = with_statistics(comparison(name))
    (part,) = document["parts"]
    part["strategies"][0]["audit"] = {"passed": True, "lost": 1234, "double": 0}
    part["strategies"][0]["reasons"] = ["a long reason " * 12]
    assert [line for line in compare_text(document).splitlines() if len(line) > 100] == []
    first = next(line for line in compare_text(document).splitlines() if " 1,234 " in line)
    assert first.split()[0] == part["strategies"][0]["strategy"]
    wide = compare_text(document, wide=True).splitlines()
    assert "p (Holm)" in wide[2]
    assert max(map(len, wide)) > 100


def test_a_part_that_was_not_reached_is_named() -> None:
    document = comparison("open")
    for each in [*document["parts"][0]["strategies"], *document["parts"][0]["references"]]:
        each["trials"] = []
    assert compare_text(with_statistics(document)) == "The load open: not run\n"


def keep(folder: Path, document: dict[str, Any], name: str = "compare.json") -> Path:
    folder.mkdir(parents=True)
    (folder / name).write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize(("a", "b", "said"), KEPT["diffs"])
def test_a_diff_of_kept_folders_is_as_it_was(
    a: str, b: str, said: dict[str, Any], tmp_path: Path
) -> None:
    found = diff(keep(tmp_path / "a", KEPT[a]), keep(tmp_path / "b", KEPT[b]))
    for name in ("settings", "missing", "rounds_needed"):
        assert found[name] == said[name]
    assert len(found["rows"]) == len(said["rows"])
    for row, was in zip(found["rows"], said["rows"]):
        for name in ("strategy", "paired", "rounds_a", "rounds_b"):
            assert row[name] == was[name]
        for name in FIGURES:
            for side in ("a", "b"):
                assert row[name][side] == pytest.approx(was[name][side], rel=1e-5)
            ratio = row[name]["ratio"]
            assert ratio["difference"] is was[name]["difference"]
            for figure in SAID[:3]:
                assert ratio[figure] == pytest.approx(was[name][figure], rel=1e-5)
    text = diff_text(found)
    if a == "open":
        # The rate of an open loop is no finding.
        assert "In B batched has 1.90 times the p99." in text
        assert "No difference in p99 could be shown: naive, slotted, naive/again." in text
    else:
        assert "No difference in the rate could be shown: naive, batched, slotted" in text
        assert "naive@2 in A alone" in text


def test_runs_are_compared_whatever_their_strategies(tmp_path: Path) -> None:
    part = KEPT["closed"]["parts"][0]

    def run(strategy: str, seed: int) -> dict[str, Any]:
        return {
            "schema": "hotcount-load/1", "kind": "run", "started": "", "conclusion": "passed",
            "settings": {**part["settings"], "strategy": strategy, "seed": seed},
            "result": part["strategies"][0]["trials"][0]["result"],
        }  # fmt: skip

    one = keep(tmp_path / "one", run("naive", 2), "run.json")
    other = keep(tmp_path / "other", run("batched", 2), "run.json")
    found = diff(one, other)
    assert [row["strategy"] for row in found["rows"]] == ["naive, batched"]
    assert "1 round: no difference can be called; that takes 6 or more." in diff_text(found)
    mixed = diff(one, keep(tmp_path / "c", KEPT["closed"]))
    assert "1 and 8" in diff_text(mixed)
    assert mixed["settings"] == ["seed 2 and 1"]
    assert "batched in B alone" in mixed["missing"]


def test_what_cannot_be_compared_is_refused_with_its_reason(tmp_path: Path) -> None:
    closed = keep(tmp_path / "closed", KEPT["closed"])
    other = copy.deepcopy(KEPT["closed"])
    for each in [*other["parts"][0]["strategies"], *other["parts"][0]["references"]]:
        each["strategy"] += "/other"
    cases = [
        (keep(tmp_path / "other", other), "no strategy in common"),
        (tmp_path / "missing", "--out"),
        (keep(tmp_path / "newer", {"schema": "hotcount-load/9"}), "hotcount-load/9"),
        (keep(tmp_path / "broken", {"schema": "hotcount-load/1"}), "parts"),
    ]
    for folder, says in cases:
        with pytest.raises(ConfigError) as refused:
            diff(closed, folder)
        assert says in str(refused.value)
        assert folder.name in str(refused.value)
