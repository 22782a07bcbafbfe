"""`hotcount load sweep`, `scale` and `calibrate`: several runs of hotcount-load, one answer.

Each study is a function of its options and of what runs (`_load_trials.Trials`), and gives the
document that --json prints and --out keeps.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any, Protocol

from hotcount._load_scale import EXTRAPOLATION, fit_law, law_per_s, with_interval
from hotcount._load_slo import errors_of
from hotcount._load_trials import Failed
from hotcount._report_numbers import can_tell, number, table, whole

Document = dict[str, Any]
PASSED, BROKEN, INCONCLUSIVE = "passed", "broken", "inconclusive"
OVERLOADED = "overloaded"  # A verdict: the strategy did not keep up, and nothing else is wrong.
EXIT_CODES = {PASSED: 0, BROKEN: 1, INCONCLUSIVE: 3}


class Runs(Protocol):
    """The calls of Trials that a study makes."""

    @property
    def interrupted(self) -> bool: ...
    @property
    def settings(self) -> list[Document]: ...
    @property
    def provenance(self) -> Document: ...
    def run(self, name: str, *options: str) -> Document: ...


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def document_of(kind: str, runs: Runs, started: str, conclusion: str, **more: Any) -> Document:
    return {
        **runs.provenance,
        "kind": kind,
        "started": started,
        **more,
        "conclusion": conclusion,
        "exit_code": EXIT_CODES[conclusion],
    }


def machine_of(document: Document) -> str:
    machine = document["machine"]
    return f"{machine['cpus']} x {machine['cpu_model']}, {machine['kernel']}"


def worst(conclusions: Sequence[str]) -> str:
    for each in (BROKEN, INCONCLUSIVE):
        if each in conclusions:
            return each
    return PASSED


SHARES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


def percentile_ms(trial: Document | None, name: str) -> str:
    times = trial["result"]["response_us"] if trial else {"count": 0}
    return number(times[name] / 1000) if can_tell(times["count"], SHARES[name]) else "-"


def headroom_of(trial: Document | None) -> str:
    headroom = (trial or {"result": {}})["result"].get("generator", {}).get("headroom")
    return f"{number(headroom)} x" if headroom else "?" if trial else "-"


# -- sweep ----------------------------------------------------------------------------------------


def sweep(runs: Runs, rates: Sequence[float], arrival: str = "poisson") -> Document:
    """Each strategy at each of several rates of an open loop. Rates that were not carried are
    findings. Failed if nothing was measured."""
    started = now()
    results = []
    conclusions = [PASSED]
    measured = False
    for settings in runs.settings:
        strategy = settings["strategy"]
        found: Document = {"strategy": strategy, "reasons": [], "trials": []}
        results.append(found)
        for at, rate in enumerate(rates, 1):
            if runs.interrupted:
                found["reasons"].append(
                    f"not run at {number(rate)}/s and above: interrupted before"
                    if found["trials"]
                    else "not run: interrupted before"
                )
                conclusions.append(INCONCLUSIVE)
                break
            try:
                trial = runs.run(
                    f"sweep-{strategy}-{at:02}", "-s", strategy, "-r", repr(rate),
                    "--arrival", arrival,
                )  # fmt: skip
            except Failed as error:
                if not measured:
                    raise
                found["reasons"].append(f"it could not be measured: {error}")
                conclusions.append(INCONCLUSIVE)
                break
            measured = True
            if trial["verdict"] != OVERLOADED:
                conclusions.append(trial["conclusion"])
            found["trials"].append(trial)
    return document_of("sweep", runs, started, worst(conclusions), strategies=results)


def _outcome(trial: Document) -> str:
    """One word for people; the reasons stand below."""
    return str(trial["verdict" if trial["verdict"] == OVERLOADED else "conclusion"])


def sweep_text(document: Document) -> str:
    head = ["strategy", "rate/s", "ok/s", "p50 ms", "p99 ms", "p99.9 ms", "errors", "lost",
            "generator", "verdict"]  # fmt: skip
    rows = []
    notes = ""
    for found in document["strategies"]:
        for trial in found["trials"]:
            rate = number(trial["settings"]["rate_per_s"])
            audit = trial["audit"]
            rows.append(
                [
                    found["strategy"], rate, number(trial["result"]["ok_per_s"]),
                    *(percentile_ms(trial, name) for name in SHARES), whole(errors_of(trial)),
                    "?" if audit is None else whole(audit["lost"]), headroom_of(trial),
                    _outcome(trial),
                ]
            )  # fmt: skip
            for reason in trial["reasons"]:
                notes += f"  {found['strategy']} at {rate}/s: {reason}\n"
        notes += "".join(f"  {found['strategy']}: {reason}\n" for reason in found["reasons"])
    return f"Rates of an open loop, on {machine_of(document)}\n\n{table(head, rows)}\n{notes}"


def sweep_csv(document: Document) -> str:
    """A line for each strategy and rate: what a chart of p99 against the offered rate needs."""
    lines = ["strategy,rate_per_s,ok_per_s,p50_ms,p99_ms,p999_ms,errors,lost,verdict"]
    for found in document["strategies"]:
        for trial in found["trials"]:
            result, audit = trial["result"], trial["audit"]
            numbers = [trial["settings"]["rate_per_s"], result["ok_per_s"]]
            numbers += [result["response_us"][name] / 1000 for name in SHARES]
            cells = [found["strategy"], *(f"{each:.6g}" for each in numbers), str(errors_of(trial)),
                     "" if audit is None else str(audit["lost"]), _outcome(trial)]  # fmt: skip
            lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


# -- scale ----------------------------------------------------------------------------------------


def _writes_per_s(trial: Document) -> float:
    """Writes; reads if nothing is written."""
    name = "writes_per_s" if trial["settings"]["mix"]["vote"] > 0 else "reads_per_s"
    return float(trial["result"][name])


def _law(found: Document, seed: int) -> Document | None:
    """The law of the complete rounds, which have all numbers of callers."""
    points = found["points"]
    rounds = min(len(point["writes_per_s"]) for point in points)
    return fit_law(
        [[(p["workers"], p["writes_per_s"][each]) for p in points] for each in range(rounds)], seed
    )


def _scale_one(runs: Runs, settings: Document, callers: Sequence[int], rounds: int) -> Document:
    strategy = settings["strategy"]
    points: list[Document] = [
        {"workers": each, "writes_per_s": [], "trials": []} for each in callers
    ]
    found: Document = {
        "strategy": strategy, "law": None, "conclusion": PASSED, "reasons": [], "points": points,
    }  # fmt: skip
    conclusions = [PASSED]
    # Upwards and downwards in turn, so that a machine that slows down favours no strategy.
    order = [
        (each, point)
        for each in range(1, rounds + 1)
        for point in (points if each % 2 else reversed(points))
    ]
    for each, point in order:
        if runs.interrupted:
            break
        workers = point["workers"]
        in_flight = ["--in-flight", str(workers)] if strategy.endswith("/async") else []
        try:
            trial = runs.run(
                f"scale-{strategy}-{each:02}-{workers}", "-s", strategy, "-w", str(workers),
                *in_flight,
            )  # fmt: skip
        except Failed as error:
            found["reasons"].append(f"it could not be measured: {error}")
            conclusions.append(INCONCLUSIVE)
            break
        conclusions.append(trial["conclusion"])
        for reason in trial["reasons"]:
            line = f"{workers} callers: {reason}"
            if line not in found["reasons"]:
                found["reasons"].append(line)
        point["writes_per_s"].append(_writes_per_s(trial))
        point["trials"].append(trial)
    found["law"] = _law(found, settings["seed"])
    done = sum(len(point["trials"]) for point in points)
    if done < len(points) * rounds:
        conclusions.append(INCONCLUSIVE)
        if not found["reasons"]:
            found["reasons"].append(
                "it ended before all its rounds were run" if done else "not run: it ended before"
            )
    found["conclusion"] = worst(conclusions)
    return found


def scale(runs: Runs, callers: Sequence[int], rounds: int) -> Document:
    """Throughput of a closed loop against the number of callers, and the law that it follows. Every
    round has each number of callers. Failed if nothing was measured."""
    started = now()
    results = []
    for settings in runs.settings:
        results.append(_scale_one(runs, settings, callers, rounds))
        nothing = not any(point["trials"] for point in results[0]["points"])
        if nothing and not runs.interrupted:
            raise Failed(results[0]["reasons"][0].removeprefix("it could not be measured: "))
    conclusion = worst([found["conclusion"] for found in results])
    return document_of(
        "scale", runs, started, conclusion, workers=list(callers), strategies=results
    )


def _law_text(law: Document | None, most: int) -> str:
    if not law:
        return "  no law: it takes three numbers of callers that all did something\n"
    peak = f"peak beyond {EXTRAPOLATION * most} callers, if there is one"
    callers = law["peak_callers"]
    if law["no_peak_because"]:
        peak = f"no peak: {law['no_peak_because']}"
    elif callers:
        peak = (
            f"peak at {with_interval(callers, law['peak_interval'])} callers: "
            f"{number(law_per_s(law, callers))}/s"
        )
    return (
        f"  sigma {with_interval(law['sigma'], law['sigma_interval'])}: the share of the work "
        f"that waits for one place\n"
        f"  kappa {with_interval(law['kappa'], law['kappa_interval'])}: what each pair of callers "
        f"costs each other\n  {peak}\n"
    )


def scale_text(document: Document) -> str:
    text = f"Throughput of a closed loop by callers, on {machine_of(document)}\n"
    for found in document["strategies"]:
        law = found["law"]
        rows = []
        for point in found["points"]:
            rates = point["writes_per_s"]
            known = [
                headroom
                for trial in point["trials"]
                if (headroom := trial["result"].get("generator", {}).get("headroom"))
            ]
            p99 = [trial["result"]["service_us"]["p99"] / 1000 for trial in point["trials"]]
            rows.append(
                [
                    str(point["workers"]),
                    *(
                        [number(statistics.median(rates)), number(min(rates)), number(max(rates))]
                        if rates else ["-"] * 3
                    ),
                    number(law_per_s(law, point["workers"])) if law else "-",
                    number(statistics.median(p99)) if p99 else "-",
                    f"{number(min(known))} x" if known else "?",
                ]
            )  # fmt: skip
        if not any(point["trials"] for point in found["points"]):
            text += f"\n{found['strategy']}: not run\n"
        else:
            head = ["callers", "median/s", "least", "most", "law", "p99 ms", "generator"]
            text += f"\n{found['strategy']}\n{table(head, rows)}\n"
            text += _law_text(law, document["workers"][-1])
        text += "".join(f"  {found['conclusion']}: {why}\n" for why in found["reasons"])
    return text


# -- calibrate ------------------------------------------------------------------------------------

FIRST_RATE, LAST_RATE, STEP = 10_000.0, 20e6, 1.5


def calibrate(runs: Runs) -> Document:
    """The limits of this machine and the generator, measured with a strategy that does nothing: the
    rate of a closed loop, the highest rate of an open loop that was carried, and how
    late sleeps end and how long flushes take around them."""
    trials: list[Document] = []

    def run(name: str, *options: str) -> Document:
        if runs.interrupted:
            raise Failed("the calibration was interrupted")
        trials.append(runs.run(name, *options))
        return dict(trials[-1]["result"])

    def cpu_us(result: Document) -> float:
        return float(1e6 * result["cpu_s"] / max(1, result["operations"]["ok"]))

    ceiling = {"closed_per_s": run("closed")["ok_per_s"], "open_per_s": 0.0}
    rate = FIRST_RATE
    while rate < LAST_RATE:
        options = ("-r", repr(rate), "--arrival", "poisson")
        result = run(f"open-{rate:.0f}", *options)
        # Once more, in case the machine was busy for a short time.
        if not result["offered"]["carried"]:
            result = run(f"open-{rate:.0f}", *options)
        if rate == FIRST_RATE:
            ceiling["cpu_us_per_operation"] = cpu_us(result)
        if not result["offered"]["carried"]:
            break
        ceiling |= {"open_per_s": rate, "cpu_us_at_ceiling": cpu_us(result)}
        rate *= STEP
    ceiling["workers"] = trials[0]["settings"]["workers"]
    states = [trial["result"]["machine"][when] for trial in trials for when in ("before", "after")]
    flushes = [state["flush_us"] for state in states if state["flush_us"] is not None]
    started = now()
    return {
        **document_of("calibration", runs, started, PASSED),
        "measured": started,
        "ceiling": ceiling,
        # Medians of what stood around each run: sleeps, and flushes of 4 KiB in its folder.
        "timer_late_us": {
            "p50": statistics.median(state["timer_overshoot_us"]["p50"] for state in states),
            "p99": statistics.median(trial["result"]["timer_floor_us"] for trial in trials),
            "max": max(state["timer_overshoot_us"]["max"] for state in states),
        },
        "flush_us": {
            "p50": statistics.median(flushes) if flushes else None,
            "max": max(flushes, default=None),
        },
    }


def calibration_text(document: Document) -> str:
    ceiling, late, flush = document["ceiling"], document["timer_late_us"], document["flush_us"]

    def times(of: Document) -> str:
        return ", ".join(f"{name} {number(us)} us" for name, us in of.items() if us is not None)

    return (
        f"The generator by itself, on {machine_of(document)}\n"
        f"  a sleep ends too late by   {times(late)}\n"
        f"  operations without work    {whole(ceiling['closed_per_s'])}/s in a closed loop, "
        f"{whole(ceiling['open_per_s'])}/s in an open loop, {ceiling['workers']} workers\n"
        f"  one of an open loop costs  {number(ceiling['cpu_us_per_operation'])} us of processor "
        f"time at {whole(FIRST_RATE)}/s, where a worker sleeps before each,\n"
        f"                             and {number(ceiling.get('cpu_us_at_ceiling', 0.0))} us at "
        f"the highest rate\n"
        f"  a flush of 4 KiB takes     {times(flush)}\n"
    )
