"""`hotcount load search`, `sweep`, `scale` and `calibrate`, over runs that did not take place."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hotcount._load_search import confirming_seed, search, search_markdown, search_text
from hotcount._load_studies import (
    calibrate,
    calibration_text,
    scale,
    scale_text,
    sweep,
    sweep_csv,
    sweep_text,
)
from hotcount._load_trials import Failed

Options = dict[str, str]
MACHINE = {"cpus": 2, "cpu_model": "CPU", "kernel": "Linux"}
LOST = "the audit found 7 lost, 0 double, 0 ghost"


@dataclass
class Runs:
    """Those of two strategies unless it says otherwise; `answer` says how each ends."""

    answer: Callable[[Options], dict[str, Any]] = lambda options: {}
    strategies: tuple[str, ...] = ("batched", "naive")
    interrupted: bool = False
    interrupt_after: float = math.inf
    done: list[tuple[str, Options]] = field(default_factory=list)

    @property
    def provenance(self) -> dict[str, Any]:
        return {"schema": "hotcount-load/1", "command": [], "versions": {}, "machine": MACHINE}

    @property
    def settings(self) -> list[dict[str, Any]]:
        return [
            {"strategy": name, "seed": 1, "duration_s": 0.1, "warmup_s": 0,
             "mix": {"vote": 80, "unvote": 5, "read": 15}}
            for name in self.strategies
        ]  # fmt: skip

    def run(self, name: str, *options: str) -> dict[str, Any]:
        given = dict(zip(options[::2], options[1::2]))
        self.done.append((name, given))
        self.interrupted = len(self.done) >= self.interrupt_after
        return made(given, **self.answer(given))


def made(
    options: Options, *, conclusion: str = "passed", reasons: list[str] | None = None,
    calls: int = 1000, ms: float = 1.0, per_s: float = 100.0, carried: bool = True, lost: int = 0,
    interrupted: bool = False, verdict: str = "",
) -> dict[str, Any]:  # fmt: skip
    rate = float(options["-r"]) if "-r" in options else None
    times = dict.fromkeys(("p50", "p99", "p999", "max"), ms * 1000)
    machine = {"timer_overshoot_us": {"p50": 17.0, "max": 90.0}, "flush_us": 800.0}
    document: dict[str, Any] = {
        "settings": {
            "rate_per_s": rate, "duration_s": 0.5, "seed": int(options.get("--seed", 1)),
            "mix": {"vote": 80}, "workers": int(options.get("-w", 32)),
        },
        "place": "memory",
        "contract": {"acknowledged": "it is counted", "may_lose": "nothing"},
        "conclusion": conclusion,
        "verdict": verdict or conclusion,
        "reasons": reasons or [],
        "thresholds": [
            {"threshold": "p99<10ms", "met": calls >= 100 and ms < 10, "too_few": calls < 100,
             "figure": f"{ms:,.0f} ms" if calls >= 100 else f"100 calls, not {calls}"},
            {"threshold": "lost=0", "met": not lost, "too_few": False, "figure": f"{lost}"},
        ],
        "audit": {"passed": conclusion != "broken", "lost": lost},
        "result": {
            "bound": "system", "interrupted": interrupted, "ok_per_s": per_s,
            "writes_per_s": per_s, "reads_per_s": 0.0, "cpu_s": 0.5, "timer_floor_us": 60.0,
            "operations": {"ok": calls, "failed": 0, "unknown": 0},
            "offered": {"carried": carried, "share": 1.0 if carried else 0.5, "censored": 0,
                        "scheduled": calls},
            "response_us": {"count": calls, **times}, "service_us": {"count": calls, **times},
            "machine": {"before": machine, "after": machine},
        },
    }  # fmt: skip
    if interrupted:  # As hotcount-load has it.
        del document["thresholds"]
    return document


def broken(options: Options) -> dict[str, Any]:
    return {"conclusion": "broken", "reasons": [LOST], "lost": 7}


def up_to(limit: float) -> Callable[[Options], dict[str, Any]]:
    """Faster than that, calls take a second."""
    return lambda options: {"ms": 1.0 if float(options.get("-r", 0)) <= limit else 1000.0}


SLO = "p99<10ms,lost=0"


def test_a_search_confirms_a_rate_in_three_trials_with_traffic_of_their_own() -> None:
    runs = Runs(up_to(1000), strategies=("batched",))
    document = search(runs, SLO)
    (found,) = document["strategies"]
    assert (document["conclusion"], document["exit_code"]) == ("passed", 0)
    assert 970 < found["rate_per_s"] <= 1000 < found["refused_per_s"]
    assert found["limit"] == "p99<10ms: 1,000 ms"
    assert runs.done[0] == (
        "search-batched-00",
        {"-s": "batched", "--arrival": "closed", "-d": "100000000ns", "--warmup": "0ns"},
    )
    first = runs.done[1][1]
    assert first["-r"] == "25.0", "a quarter of what the closed loop reached"
    assert first["--arrival"] == "poisson"
    seeds = [trial["settings"]["seed"] for trial in found["trials"]]
    assert seeds[0] == 1
    assert len({*seeds[-3:], 1}) == 4
    text = search_text(document)
    assert "\nEach rate held in three more trials" in text
    assert "acknowledgement means\n  batched on memory: when answered, it is counted" in text


def test_a_search_ends_at_a_broken_contract() -> None:
    runs = Runs(broken, strategies=("batched",))
    document = search(runs, SLO, first=100)
    (found,) = document["strategies"]
    assert (document["conclusion"], document["exit_code"]) == ("broken", 1)
    assert len(found["trials"]) == 1
    assert found["rate_per_s"] == 0
    assert found["reasons"] == [LOST]
    assert f"batched: broken: {LOST}" in search_text(document)
    # Also if the short load that says where to begin finds it.
    sooner = search(Runs(broken, strategies=("batched",)), SLO)
    assert sooner["conclusion"] == "broken"
    assert sooner["strategies"][0]["trials"] == []


@pytest.mark.parametrize(
    ("answer", "slo", "options", "reason"),
    [
        (lambda _: {}, SLO, {"max_time_s": 0.3, "clock": iter(range(1000)).__next__},
         "--max-time 300ms ended the search before a rate was confirmed; 100 held once"),
        (lambda _: {"calls": 5}, SLO, {}, "p99<10ms: 100 calls, not 5: raise -d or --from"),
        (lambda _: {"ms": 50.0}, SLO, {}, "no rate held: p99<10ms: 50 ms"),
        (lambda _: {"interrupted": True, "conclusion": "inconclusive"}, SLO, {},
         "it was interrupted"),
    ],
    ids=["time", "short trials", "nothing holds", "interrupted"],
)  # fmt: skip
def test_a_search_without_an_answer_is_inconclusive_and_says_why(
    answer: Callable[[Options], dict[str, Any]], slo: Any, options: dict[str, Any], reason: str
) -> None:
    document = search(Runs(answer, strategies=("batched",)), slo, first=100, **options)
    (found,) = document["strategies"]
    assert (document["conclusion"], document["exit_code"]) == ("inconclusive", 3)
    assert (found["rate_per_s"], found["reasons"]) == (0, [reason])
    if "raise -d" in reason:
        assert found["refused_per_s"] is None, "the rate is not to blame"
    text = search_text(document)
    assert reason in text
    assert "held in three trials" not in text
    assert "| batched | inconclusive | " in search_markdown(document)


def test_a_search_that_cannot_go_on_keeps_what_it_measured() -> None:
    def ends(options: Options) -> dict[str, Any]:
        if float(options.get("-r", 0)) > 200:
            raise Failed("the server is gone")
        return {}

    (found,) = search(Runs(ends, strategies=("batched",)), SLO, first=100)["strategies"]
    assert len(found["trials"]) == 2
    assert found["reasons"] == ["it could not be measured: the server is gone"]


def test_each_confirmation_has_a_seed_of_its_own() -> None:
    assert confirming_seed(1, 1) == confirming_seed(1, 1)
    assert len({confirming_seed(1, 1), confirming_seed(1, 2), confirming_seed(2, 1)}) == 3
    assert confirming_seed(1, 1) < 2**53


def test_a_sweep_has_a_line_for_each_rate() -> None:
    document = sweep(Runs(), [100, 200])
    assert (document["conclusion"], document["exit_code"]) == ("passed", 0)
    rows = list(csv.DictReader(sweep_csv(document).splitlines()))
    assert [(row["strategy"], row["rate_per_s"], row["lost"]) for row in rows] == [
        ("batched", "100", "0"), ("batched", "200", "0"), ("naive", "100", "0"),
        ("naive", "200", "0"),
    ]  # fmt: skip


OVERLOADED = {"conclusion": "inconclusive", "verdict": "overloaded"}
FAILING = {"conclusion": "inconclusive", "reasons": ["errors: 5 %"]}


@pytest.mark.parametrize(
    ("answer", "conclusion"),
    [
        (broken, "broken"),
        (lambda _: FAILING, "inconclusive"),
        # A rate that was not carried is a finding.
        (lambda _: OVERLOADED, "passed"),
    ],
)
def test_a_sweep_is_as_good_as_its_worst_trial(
    answer: Callable[[Options], dict[str, Any]], conclusion: str
) -> None:
    document = sweep(Runs(answer), [100])
    assert document["conclusion"] == conclusion
    word = "overloaded" if conclusion == "passed" else conclusion
    assert [line.split()[-1] for line in sweep_text(document).splitlines()[3:5]] == [word] * 2


def test_a_scale_measures_each_number_of_callers_in_each_round() -> None:
    runs = Runs(lambda options: {"per_s": 100.0 * int(options["-w"])}, strategies=("batched",))
    document = scale(runs, [1, 2, 4], 2)
    (found,) = document["strategies"]
    assert document["conclusion"] == "passed"
    assert [name for name, _ in runs.done] == [
        f"scale-batched-{each}" for each in ("01-1", "01-2", "01-4", "02-4", "02-2", "02-1")
    ]
    assert [point["writes_per_s"] for point in found["points"]] == [[100] * 2, [200] * 2, [400] * 2]
    assert found["law"]["sigma_interval"] is None, "two rounds have no interval"
    assert "sigma 0" in scale_text(document)
    made_400 = iter([100.0, 200.0, 400.0, 800.0])
    four = scale(Runs(lambda _: {"per_s": next(made_400)}, strategies=("naive",)), [1], 4)
    assert "300" in scale_text(four).split(), "a true median"


def test_a_scale_states_no_peak_where_the_law_does_not_fit() -> None:
    rates = {1: 500.0, 2: 250.0, 4: 900.0, 8: 1500.0, 16: 300.0}
    runs = Runs(lambda options: {"per_s": rates[int(options["-w"])]}, strategies=("naive",))
    document = scale(runs, list(rates), 6)
    text = scale_text(document)
    assert "no peak: the law does not fit these rounds" in text
    assert "peak at" not in text
    assert document["strategies"][0]["law"]["peak_callers"] is None


@pytest.mark.parametrize(
    ("study", "reasons"),
    [
        (lambda runs: search(runs, SLO, first=100), ["not run: interrupted before"]),
        (lambda runs: sweep(runs, [100, 200]), ["not run: interrupted before"]),
        (lambda runs: scale(runs, [1, 2], 1), ["not run: it ended before"]),
    ],
    ids=["search", "sweep", "scale"],
)
def test_an_interrupted_study_names_what_did_not_run(
    study: Callable[[Runs], dict[str, Any]], reasons: list[str]
) -> None:
    def answer(options: Options) -> dict[str, Any]:
        return {"interrupted": True, "conclusion": "inconclusive", "reasons": ["interrupted"]}

    document = study(Runs(answer, interrupt_after=1))
    assert (document["conclusion"], document["exit_code"]) == ("inconclusive", 3)
    begun, other = document["strategies"]
    assert begun["reasons"]
    assert other["reasons"] == reasons
    text = {"search": search_text, "sweep": sweep_text, "scale": scale_text}[document["kind"]]
    assert "naive" in text(document)
    assert "not run" in text(document)


@pytest.mark.parametrize("study", [lambda r: sweep(r, [100]), lambda r: scale(r, [1, 2], 1)])
def test_a_study_that_measured_nothing_fails(study: Callable[[Runs], object]) -> None:
    def fails(options: Options) -> dict[str, Any]:
        raise Failed("no server")

    with pytest.raises(Failed, match="no server"):
        study(Runs(fails))


def test_a_calibration_is_the_highest_rate_that_was_carried() -> None:
    runs = Runs(
        lambda options: {"carried": float(options.get("-r", 0)) < 20_000, "per_s": 1e6},
        strategies=("nothing",),
    )
    document = calibrate(runs)
    assert document["kind"] == "calibration"
    assert document["ceiling"] == {
        "closed_per_s": 1e6, "open_per_s": 15_000.0, "workers": 32, "cpu_us_per_operation": 500.0,
        "cpu_us_at_ceiling": 500.0,
    }  # fmt: skip
    # A machine that was busy for a moment gets another chance.
    assert [options.get("-r") for _, options in runs.done] == [
        None, "10000.0", "15000.0", "22500.0", "22500.0",
    ]  # fmt: skip
    assert document["timer_late_us"] == {"p50": 17, "p99": 60, "max": 90}
    assert document["flush_us"] == {"p50": 800, "max": 800}
    text = calibration_text(document)
    assert "1,000,000/s in a closed loop, 15,000/s in an open loop" in text
    assert "p50 17.0 us" in text
