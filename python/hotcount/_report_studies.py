"""The results of `hotcount load search`, `sweep` and `scale`, for hotcount.report."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

from hotcount._load_scale import law_per_s, with_interval
from hotcount._load_search import slowest
from hotcount._load_studies import SHARES, percentile_ms
from hotcount._report_charts import chart_of, colour_of, ticks
from hotcount._report_numbers import number, whole
from hotcount._report_rows import LEAST_ROUNDS, kept, load_of
from hotcount.report import Chart, Measured


def rows_of(measured: Measured) -> list[dict[str, Any]]:
    """A dict for each trial; of `scale`, for each number of callers."""
    return [
        row
        for found in measured.study
        for row in (
            [_of_callers(found, point) for point in found["points"] if point["writes_per_s"]]
            if measured.kind == "scale"
            else [_of_trial(found, trial) for trial in found["trials"]]
        )
    ]


def _of_trial(found: dict[str, Any], trial: dict[str, Any]) -> dict[str, Any]:
    result = trial["result"]
    latency, done = result["response_us"], result["operations"]
    return {
        "strategy": found["strategy"],
        "rate_per_s": trial["settings"]["rate_per_s"],
        "ok_per_s": result["ok_per_s"],
        "p50_ms": latency["p50"] / 1000,
        "p99_ms": latency["p99"] / 1000,
        "p999_ms": latency["p999"] / 1000,
        "without_an_answer": done["failed"] + done["unknown"] + result["offered"]["censored"],
        # In a search: whether the trial met the SLO.
        "held": trial.get("held", trial["conclusion"] == "passed"),
    }


def _of_callers(found: dict[str, Any], point: dict[str, Any]) -> dict[str, Any]:
    rates = point["writes_per_s"]
    return {
        "strategy": found["strategy"],
        "callers": point["workers"],
        "writes_per_s": statistics.median(rates),
        "least": min(rates),
        "most": max(rates),
        "fitted": found["law"] and law_per_s(found["law"], point["workers"]),
    }


# -- in words -------------------------------------------------------------------------------------


def _trials_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Of all numbers of callers, if there are several."""
    if "points" in found:
        return [trial for point in found["points"] for trial in point["trials"]]
    return list(found["trials"])


def _all_trials(measured: Measured) -> list[dict[str, Any]]:
    return [trial for found in measured.study for trial in _trials_of(found)]


def _audit_word(trials: Sequence[dict[str, Any]]) -> str:
    """Of all trials of a strategy."""
    if not trials:
        return "not run"
    audits = [trial.get("audit") for trial in trials]
    if any(audit is not None and not audit["passed"] for audit in audits):
        return "broken"
    if any(audit is None for audit in audits):
        return "not audited"
    return "allowed" if _allowed(trials) else "passed"


def _allowed(trials: Sequence[dict[str, Any]]) -> int:
    """Findings that the contract allows."""
    return sum((trial.get("audit") or {}).get("declared", 0) for trial in trials)


def sentences_of(measured: Measured) -> list[str]:
    said = [f"Asked for: {measured.slo}"] if measured.slo else []
    of = {"search": _of_search, "sweep": _of_sweep, "scale": _of_scale}[measured.kind]
    for found in measured.study:
        said += [f"{found['strategy']}{each}" for each in of(found)]
        said += [f"{found['strategy']}: {reason}" for reason in found["reasons"]]
    audits = {found["strategy"]: _audit_word(_trials_of(found)) for found in measured.study}
    broken = [name for name, word in audits.items() if word == "broken"]
    unknown = [name for name, word in audits.items() if word == "not audited"]
    if broken:
        said.append(f"The audit found a broken promise of {', '.join(broken)}")
    elif unknown:
        said.append(f"The counts of {', '.join(unknown)} were not audited")
    elif any(audits[name] in ("passed", "allowed") for name in audits):
        said.append(
            kept({found["strategy"]: _allowed(_trials_of(found)) for found in measured.study})
        )
    return said


def _of_search(found: dict[str, Any]) -> list[str]:
    rate, refused = found["rate_per_s"], found["refused_per_s"]
    said = f" carries {number(rate)} calls/s" if rate else ": no rate was confirmed"
    if refused is not None:
        said += f"; at {number(refused)} it misses {found['limit']}"
    return [said]


def _of_sweep(found: dict[str, Any]) -> list[str]:
    rates = {trial["settings"]["rate_per_s"]: trial for trial in found["trials"]}
    if not rates:
        return []
    held = [rate for rate, trial in rates.items() if trial["conclusion"] == "passed"]
    said = [
        f" carried {number(max(held))} calls/s; p99 there, in ms: "
        f"{percentile_ms(rates[max(held)], 'p99')}"
        if held
        else " carried none of these rates"
    ]
    return said + [
        f" at {number(rate)} calls/s: {reason}"
        for rate, trial in rates.items()
        for reason in trial["reasons"]
    ]


def _of_scale(found: dict[str, Any]) -> list[str]:
    law = found["law"]
    if not law:
        return [": no law; it takes three numbers of callers that all did something"]
    peak = law["peak_callers"]
    if not peak:
        why = law.get("no_peak_because") or "if there is one, it is far beyond these callers"
        return [f" has no peak: {why}"]
    rate = number(law_per_s(law, peak))
    return [f" is fastest with {number(peak)} callers, by the fitted law: {rate} writes/s"]


def load_and_places_of(measured: Measured) -> tuple[str, list[str]]:
    """The load and the place of the counts, of the first trial; all trials have the same."""
    trials = _all_trials(measured)
    if not trials:
        return "", []
    settings = [trial["settings"] for trial in trials]
    if measured.kind == "scale":
        callers = [each["workers"] for each in settings]
        loop = f"closed loop, {min(callers):,} to {max(callers):,} callers"
    else:
        rates = [each["rate_per_s"] for each in settings]
        loop = (
            f"open loop, {number(min(rates))} to {number(max(rates))} operations/s, "
            f"{settings[0]['workers']:,} workers"
        )
    return load_of(settings[0], loop), [trial["place"] for trial in trials]


def meanings_of(measured: Measured) -> list[tuple[str, str, str]]:
    """Each strategy, the guarantee of its acknowledgement, and its possible losses."""
    found = []
    for each in measured.study:
        for trial in _trials_of(each)[:1]:
            contract = trial["contract"]
            found.append((each["strategy"], contract["acknowledged"], contract["may_lose"]))
    return found


def scorecard_of(measured: Measured) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads, and a line for each strategy, of which the second cell is the audit's verdict."""
    head, cells = {
        "search": (SEARCH_HEAD, _search_cells),
        "sweep": (SWEEP_HEAD, _sweep_cells),
        "scale": (SCALE_HEAD, _scale_cells),
    }[measured.kind]
    return ("strategy", "audit", *head), [
        (found["strategy"], _audit_word(_trials_of(found)), *cells(found))
        for found in measured.study
    ]


SEARCH_HEAD = ("calls/s", "refused at", "writes/s", "p50 ms", "p99 ms", "p99.9 ms", "trials",
               "what the next rate misses")  # fmt: skip
SWEEP_HEAD = ("highest calls/s that was carried", "p50 ms", "p99 ms", "p99.9 ms",
              "lowest calls/s that was not")  # fmt: skip
SCALE_HEAD = ("sigma", "kappa", "peak callers", "writes/s there")


def _three_times(trial: dict[str, Any] | None) -> tuple[str, ...]:
    return tuple(percentile_ms(trial, name) for name in SHARES)


def _search_cells(found: dict[str, Any]) -> tuple[str, ...]:
    rate, refused = found["rate_per_s"], found["refused_per_s"]
    at = slowest(found)
    return (
        number(rate) if rate else "-",
        "-" if refused is None else number(refused),
        number(at["result"]["writes_per_s"]) if at else "-",
        *_three_times(at),
        whole(len(found["trials"])),
        found["limit"],
    )


def _sweep_cells(found: dict[str, Any]) -> tuple[str, ...]:
    def rate_of(trial: dict[str, Any]) -> float:
        return float(trial["settings"]["rate_per_s"])

    held = [trial for trial in found["trials"] if trial["conclusion"] == "passed"]
    others = [trial for trial in found["trials"] if trial["conclusion"] != "passed"]
    best = max(held, key=rate_of, default=None)
    return (
        number(rate_of(best)) if best else "-",
        *_three_times(best),
        number(min(map(rate_of, others))) if others else "-",
    )


def _scale_cells(found: dict[str, Any]) -> tuple[str, ...]:
    law = found["law"]
    if not law:
        return "-", "-", "-", "-"
    peak = law["peak_callers"]
    return (
        with_interval(law["sigma"], law["sigma_interval"]),
        with_interval(law["kappa"], law["kappa_interval"]),
        with_interval(peak, law["peak_interval"]) if peak else "-",
        number(law_per_s(law, peak)) if peak else "-",
    )


# -- drawn ----------------------------------------------------------------------------------------

HEADS = {
    "rate_per_s": "calls due/s", "ok_per_s": "answered/s", "p50_ms": "p50 ms", "p99_ms": "p99 ms",
    "p999_ms": "p99.9 ms", "without_an_answer": "without an answer", "writes_per_s": "writes/s",
}  # fmt: skip
# The meaning of `held`.
HELD = {"search": "held what was asked for", "sweep": "carried"}


def charts_of(measured: Measured) -> list[Chart]:
    rows = rows_of(measured)
    if not rows:
        return []
    return [_callers(measured, rows) if measured.kind == "scale" else _offered(measured, rows)]


def _head(measured: Measured, row: dict[str, Any]) -> list[str]:
    names = {**HEADS, "held": HELD.get(measured.kind, "held")}
    return [names.get(each, each) for each in row]


def _numbers(rows: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [
        tuple(
            "" if cell is None
            else ("yes" if cell else "no") if isinstance(cell, bool)
            else cell if isinstance(cell, str)
            else whole(cell) if isinstance(cell, int)
            else number(cell)
            for cell in row.values()
        )
        for row in rows
    ]  # fmt: skip


def _most_p99_ms(slo: str) -> float | None:
    """The p99 that a search may not reach. None: it may be anything."""
    found = re.search(r"(?:^|,)p99<=?([0-9.]+)(us|ms|s)(?:,|$)", slo)
    return float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[found[2]] if found else None


def _offered(measured: Measured, rows: list[dict[str, Any]]) -> Chart:
    figure = go.Figure()
    for name in dict.fromkeys(row["strategy"] for row in rows):
        mine = sorted(
            (row for row in rows if row["strategy"] == name), key=lambda row: row["rate_per_s"]
        )
        figure.add_scatter(
            x=[row["rate_per_s"] for row in mine],
            y=[row["p99_ms"] for row in mine],
            name=name,
            # A search tries the rates around its answer several times.
            mode="markers" if measured.kind == "search" else "lines+markers",
            marker_symbol=["circle" if row["held"] else "circle-open" for row in mine],
            hovertemplate="%{x:,.0f}/s: %{y:.3g} ms",
        )
    times = [row["p99_ms"] for row in rows]
    said = "p99 from the time that a call was due; hollow: the rate was not held."
    most = _most_p99_ms(measured.slo)
    if most is not None:
        figure.add_hline(y=most, line_dash="dot", line_color="#57606a")
        times.append(most)
        said += f" Dotted: {number(most)} ms, which p99 had to stay below."
    rates = ticks(row["rate_per_s"] for row in rows)
    figure.update_xaxes(type="log", title="calls due each second", **rates)
    figure.update_yaxes(type="log", title="p99 ms", **ticks(times))
    head = _head(measured, rows[0])
    return chart_of(figure, "Latency against the rate", said, head, _numbers(rows))


def _callers(measured: Measured, rows: list[dict[str, Any]]) -> Chart:
    figure = go.Figure()
    rounds = max(
        len(point["writes_per_s"]) for found in measured.study for point in found["points"]
    )
    for nth, found in enumerate(measured.study):
        mine = [row for row in rows if row["strategy"] == found["strategy"]]
        if not mine:
            continue
        colour = colour_of(nth)
        figure.add_scatter(
            x=[row["callers"] for row in mine],
            y=[row["writes_per_s"] for row in mine],
            name=found["strategy"],
            mode="markers",
            marker_color=colour,
            error_y={"type": "data", "symmetric": False,
                     "array": [row["most"] - row["writes_per_s"] for row in mine],
                     "arrayminus": [row["writes_per_s"] - row["least"] for row in mine]},
        )  # fmt: skip
        if found["law"]:
            last = max(row["callers"] for row in mine)
            steps = [last ** (step / 40) for step in range(41)]
            figure.add_scatter(
                x=steps, y=[law_per_s(found["law"], step) for step in steps],
                name=f"{found['strategy']}, fitted", mode="lines", line_dash="dot",
                line_color=colour,
            )  # fmt: skip
    measured_at = sorted({row["callers"] for row in rows})
    figure.update_xaxes(
        type="log", title="callers",
        tickvals=measured_at, ticktext=[whole(each) for each in measured_at],
    )  # fmt: skip
    figure.update_yaxes(title="writes/s", rangemode="tozero")
    said = (
        f"The median of {rounds} rounds, from the least to the most; dotted: what the law says. "
        "sigma is the share of the work that waits for one place, kappa what each pair of callers "
        "costs each other"
    )
    said += (
        "; in brackets their 95 % intervals." if rounds >= LEAST_ROUNDS
        else f"; {rounds} rounds have no intervals of the two."
    )  # fmt: skip
    head = _head(measured, rows[0])
    return chart_of(figure, "Throughput against callers", said, head, _numbers(rows))
