"""What `search`, `sweep` and `scale` of hotcount-load measured, for hotcount.report."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from hotcount._report_charts import chart_of, number
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
        # Of a search: whether it met what was asked for.
        "held": trial.get("held", trial["conclusion"] == "passed"),
    }


def _of_callers(found: dict[str, Any], point: dict[str, Any]) -> dict[str, Any]:
    rates = sorted(point["writes_per_s"])
    return {
        "strategy": found["strategy"],
        "callers": point["workers"],
        "writes_per_s": rates[len(rates) // 2],
        "least": rates[0],
        "most": rates[-1],
        "fitted": _law(found["law"], point["workers"]),
    }


def _law(law: dict[str, Any] | None, callers: float) -> float | None:
    """The Universal Scalability Law, with the constants that were fitted."""
    if law is None:
        return None
    waits = law["sigma"] * (callers - 1)
    crosstalk = law["kappa"] * callers * (callers - 1)
    return float(law["lambda_per_s"] * callers / (1 + waits + crosstalk))


def sentences_of(measured: Measured) -> list[str]:
    said = []
    for found in measured.study:
        name = found["strategy"]
        if measured.kind == "search":
            rate, refused = found["rate_per_s"], found["refused_per_s"]
            if not rate:
                said.append(f"{name}: no rate was confirmed")
                continue
            said.append(f"{name} carries {number(rate)} calls/s")
            if refused is not None:
                said[-1] += f", and not {number(refused)}: {found['limit']}"
        elif measured.kind == "scale" and found["law"] and found["law"]["peak_callers"]:
            said.append(f"{name} is fastest with {number(found['law']['peak_callers'])} callers")
        said += [f"{name}: {reason}" for reason in found["reasons"]]
    return said


def charts_of(measured: Measured) -> list[Chart]:
    rows = rows_of(measured)
    if not rows:
        return []
    return [_callers(measured, rows) if measured.kind == "scale" else _offered(measured.kind, rows)]


def _numbers(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [
        tuple(
            "" if cell is None
            else ("yes" if cell else "no") if isinstance(cell, bool)
            else cell if isinstance(cell, str)
            else number(cell)
            for cell in row.values()
        )
        for row in rows
    ]  # fmt: skip


def _offered(kind: str, rows: list[dict[str, Any]]) -> Chart:
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
            mode="markers" if kind == "search" else "lines+markers",
            marker_symbol=["circle" if row["held"] else "circle-open" for row in mine],
            hovertemplate="%{x:,.0f}/s: %{y:.3g} ms",
        )
    figure.update_xaxes(type="log", title="calls due each second", dtick="D2")
    figure.update_yaxes(type="log", title="p99 ms", dtick="D2")
    said = "p99 from the time that a call was due; hollow: the rate was not held."
    return chart_of(figure, "Latency against the rate", said, list(rows[0]), _numbers(rows))


def _callers(measured: Measured, rows: list[dict[str, Any]]) -> Chart:
    figure = go.Figure()
    for found in measured.study:
        mine = [row for row in rows if row["strategy"] == found["strategy"]]
        figure.add_scatter(
            x=[row["callers"] for row in mine],
            y=[row["writes_per_s"] for row in mine],
            name=found["strategy"],
            mode="markers",
            error_y={"type": "data", "symmetric": False,
                     "array": [row["most"] - row["writes_per_s"] for row in mine],
                     "arrayminus": [row["writes_per_s"] - row["least"] for row in mine]},
        )  # fmt: skip
        if found["law"]:
            last = max(row["callers"] for row in mine)
            steps = [last ** (step / 40) for step in range(41)]
            figure.add_scatter(
                x=steps, y=[_law(found["law"], step) for step in steps],
                name=f"{found['strategy']}, fitted", mode="lines", line_dash="dot",
            )  # fmt: skip
    figure.update_xaxes(type="log", title="callers", dtick="D2")
    figure.update_yaxes(title="writes/s", rangemode="tozero")
    said = "The median of the rounds, from the least to the most; dotted: what the law says."
    return chart_of(figure, "Throughput against callers", said, list(rows[0]), _numbers(rows))
