"""The chart of `hotcount.report` that shows a run second by second, by plotly."""

from __future__ import annotations

import plotly.graph_objects as go

from hotcount._report_charts import chart_of
from hotcount._report_numbers import number, whole
from hotcount.report import Chart, Measured


def _faults(measured: Measured) -> list[tuple[str, float, float]]:
    """Returns name, begin and end of each fault, in seconds since the start of the warm-up.

    The measured times if there are any, otherwise the planned ones.
    """
    went = [
        (each.fault, each.from_s, each.from_s + each.away_s)
        for part in measured.parts for row in part.rows for each in row.recoveries
    ]  # fmt: skip
    first = measured.warmup_s
    return went or [
        (fault.name, first + fault.from_s, first + fault.until_s) for fault in measured.faults
    ]


# Headings for the columns of series.csv.
HEADS = {
    "from_s": "from s", "length_s": "length s", "vote_ok": "votes", "unvote_ok": "unvotes",
    "read_ok": "reads", "p50_ms": "p50 ms", "p99_ms": "p99 ms", "max_ms": "max ms",
}  # fmt: skip


def _cell(column: str, value: float) -> str:
    if column == "warmup":
        return "yes" if value else "no"
    if column.endswith("_s"):
        return f"{value:g}"
    return number(value) if column.endswith("_ms") else whole(value)


def _timeline(measured: Measured) -> Chart:
    series = measured.series
    at = series["from_s"]
    figure = go.Figure()
    for column, name in (
        ("vote_ok", "votes"),
        ("unvote_ok", "unvotes"),
        ("read_ok", "reads"),
        ("failed", "failed"),
        ("unknown", "unknown"),
        ("unserved", "unserved"),
    ):
        if any(series[column]):
            counts = zip(series[column], series["length_s"], strict=True)
            rate = [count / length for count, length in counts]
            figure.add_scatter(x=at, y=rate, name=f"{name}/s", mode="lines", line_shape="hv")
    figure.add_scatter(
        x=at,
        y=series["p99_ms"],
        name="p99 ms",
        mode="lines",
        yaxis="y2",
        line={"dash": "dot", "shape": "hv", "color": "#57606a"},
    )
    if measured.warmup_s > 0:
        figure.add_vrect(x0=0, x1=measured.warmup_s, fillcolor="#57606a", opacity=0.1, line_width=0)
    for name, begins, ends in _faults(measured):
        figure.add_vrect(
            x0=begins, x1=ends, fillcolor="#b42318", opacity=0.15, line_width=0,
            annotation_text=name, annotation_position="top left",
        )  # fmt: skip
    recovered = [
        each.from_s + each.away_s + each.recovered_s
        for part in measured.parts for row in part.rows for each in row.recoveries
        if each.recovered_s is not None
    ]  # fmt: skip
    for at_s in recovered:
        figure.add_vline(x=at_s, line_dash="dot", line_color="#1a7f37")
    figure.update_layout(
        xaxis={"title": "seconds"},
        yaxis={"title": "per second", "rangemode": "tozero"},
        # Ticks of its own: at those of the left axis its numbers would not be round.
        yaxis2={
            "title": "p99 ms",
            "overlaying": "y",
            "side": "right",
            "rangemode": "tozero",
            "tickmode": "auto",
            "showgrid": False,
        },
    )
    said = "Grey: the warm-up, which the figures leave out."
    if measured.faults:
        said += " Red: " + ", ".join(fault.name for fault in measured.faults) + "."
    if recovered:
        said += " Green: when the rate was at 90 % of the one before."
    columns = list(series)
    rows = [[_cell(name, series[name][row]) for name in columns] for row in range(len(at))]
    head = [HEADS.get(name, name.replace("_", " ")) for name in columns]
    return chart_of(figure, "As it went", said, head, rows)


def of_time(measured: Measured) -> list[Chart]:
    """Returns the chart of a run second by second; an empty list for a comparison."""
    return [_timeline(measured)] if measured.series else []
