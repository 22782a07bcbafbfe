"""The charts of `hotcount.report`, by plotly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hotcount._report_rows import WORKLOADS
from hotcount.report import Chart, Measured, Part, Recovery, Row

COLOURS = (
    "#2f6fde", "#d1680f", "#1a7f37", "#8250df", "#b42318", "#57606a", "#0a7e8c", "#bf8700",
    "#c2307a", "#6b4f2a", "#5a9e00", "#00539c",
)  # fmt: skip


def number(value: float) -> str:
    """With three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(three: tuple[float, float, float] | None) -> str:
    """The median, and the ends of its interval."""
    if three is None:
        return ""
    least, median, most = three
    if least == most:
        return number(median)
    return f"{number(median)} ({number(least)} to {number(most)})"


def ratio_of(row: Row) -> str:
    return f"{spread(row.ratio)}{' ~' if row.difference is False else ''}"


def ticks(values: Iterable[float]) -> dict[str, Any]:
    """Of a logarithmic axis: plotly writes no whole numbers on one that spans less than a decade,
    and bare digits between the decades of a longer one.
    """
    known = [value for value in values if value > 0]
    if not known:
        return {}
    least, most = min(known), max(known)
    first = math.floor(math.log10(least))
    last = math.ceil(math.log10(most))
    # Of four decades and more, the decades.
    each_decade = (1, 2, 5) if last - first < 4 else (1,)
    steps = [step * 10.0**decade for decade in range(first - 3, last + 1) for step in each_decade]
    below = max((each for each in steps if each <= least), default=least)
    above = min((each for each in steps if each >= most), default=most)
    at = [each for each in steps if below <= each <= above]
    if len(at) < 4:
        step = next(each for each in steps if each >= (most - least) / 6)
        at = [nth * step for nth in range(math.floor(least / step), math.ceil(most / step) + 1)]
    return {"tickvals": at, "ticktext": [f"{each:,.9g}" for each in at]}


def chart_of(
    figure: Any, title: str, said: str, head: Sequence[str], numbers: Iterable[Sequence[str]]
) -> Chart:
    """A chart in the looks that all have."""
    figure.update_layout(
        template="plotly_white",
        colorway=COLOURS,
        height=380,
        margin={"l": 60, "r": 15, "t": 10, "b": 50},
        legend={"orientation": "h", "y": -0.25},
        # On a phone a drag scrolls the page; it does not zoom into a chart.
        dragmode=False,
        font={"family": "system-ui, sans-serif"},
    )
    return Chart(title, said, figure, tuple(head), tuple(tuple(row) for row in numbers))


def slowest_recovery(recoveries: Iterable[Recovery]) -> float | None:
    """None: there was no fault, or the rate did not come back in the load."""
    times = [each.recovered_s for each in recoveries]
    known = [each for each in times if each is not None]
    return max(known) if known and len(known) == len(times) else None


def of_databases(parts: Iterable[Part]) -> list[Chart]:
    """The same strategies on several databases; nothing where there is one."""
    by_workload: dict[str, list[Part]] = {}
    for part in parts:
        if part.database and part.rows:
            by_workload.setdefault(part.workload, []).append(part)
    return [_databases(found) for found in by_workload.values() if len(found) > 1]


def _databases(parts: Sequence[Part]) -> Chart:
    figure = go.Figure()
    numbers = []
    for part in parts:
        rows = [row for row in part.rows if not row.reference and row.writes_per_s[1] > 0]
        figure.add_scatter(
            x=[row.writes_per_s[1] for row in rows],
            y=[row.strategy for row in rows],
            name=part.database,
            mode="markers",
            marker={"size": 11, "symbol": ["circle" if row.audit == "passed" else "circle-open"
                                           for row in rows]},
            error_x={"type": "data", "symmetric": False,
                     "array": [row.writes_per_s[2] - row.writes_per_s[1] for row in rows],
                     "arrayminus": [row.writes_per_s[1] - row.writes_per_s[0] for row in rows]},
        )  # fmt: skip
        numbers += [
            (row.strategy, part.database, spread(row.writes_per_s), row.audit) for row in rows
        ]
    rates = [rate for part in parts for row in part.rows for rate in row.writes_per_s]
    figure.update_xaxes(type="log", title="writes/s", **ticks(rates))
    figure.update_yaxes(autorange="reversed", automargin=True)
    names = " and ".join(part.database for part in parts)
    said = (
        f"{WORKLOADS.get(parts[0].workload, parts[0].workload)} on {names}: medians with their "
        "intervals. They ran one database after another, so nobody tested a difference between "
        "two databases; hollow: the audit did not pass."
    )
    head = ("strategy", "database", "writes/s", "audit")
    longest = max(len(part.rows) for part in parts)
    return tall(
        chart_of(figure, "Writes per second on each database", said, head, numbers), longest
    )


def tall(chart: Chart, rows: int, each: int = 26) -> Chart:
    """With room for so many names, one below another."""
    chart.figure.update_layout(height=max(380, 150 + each * rows))
    return chart


# What a server pays for a write: of a row, the axis, and how the text names it.
PAID = (
    ("log_bytes", "bytes of log for each write"),
    ("commits", "commits for each write"),
    ("server_ms", "ms of the servers' processor time for each write"),
)


def _paid(rows: Sequence[Row]) -> Chart:
    kinds = [(name, title) for name, title in PAID if any(getattr(row, name) for row in rows)]
    figure = make_subplots(
        rows=len(kinds), cols=1, subplot_titles=[title for _, title in kinds],
        vertical_spacing=0.32 / max(2, len(kinds)),
    )  # fmt: skip
    for at, (name, _) in enumerate(kinds, start=1):
        paid = [getattr(row, name) for row in rows]
        figure.add_bar(
            x=paid, y=[row.strategy for row in rows], orientation="h", row=at, col=1,
            text=["n/a" if each is None else number(each) for each in paid],
            textposition="outside", cliponaxis=False, marker_color=COLOURS[at - 1],
            hovertemplate="%{y}: %{x:.4g}",
        )  # fmt: skip
        most = max(each or 0 for each in paid)
        # The numbers stand behind their bars.
        figure.update_xaxes(range=[0, 1.25 * most], row=at, col=1)
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(showlegend=False)
    why = dict.fromkeys(each for row in rows for each in row.not_known)
    said = (
        "Log that was written, transactions that wrote, and the processor time of private servers, "
        "from the start of the load until nothing was put off any more, for each write that was "
        "acknowledged."
    )
    if why:
        said += f" n/a: not known ({'; '.join(why)})."
    head = ("strategy", "log bytes", "commits", "server ms")
    numbers = [
        (row.strategy, *("n/a" if each is None else number(each)
                         for each in (row.log_bytes, row.commits, row.server_ms)))
        for row in rows
    ]  # fmt: skip
    drawn = chart_of(figure, "What the servers paid for each write", said, head, numbers)
    figure.update_layout(height=90 + len(kinds) * (60 + 22 * len(rows)), margin={"t": 30})
    return drawn


def _recovery(rows: Sequence[Row]) -> Chart:
    figure = go.Figure()
    numbers = []
    for fault in dict.fromkeys((each.fault, each.at_s) for row in rows for each in row.recoveries):
        name = f"{fault[0]} at {fault[1]:g} s"
        for row in rows:
            mine = [each for each in row.recoveries if (each.fault, each.at_s) == fault]
            if not mine:
                continue
            came = sorted(each.recovered_s for each in mine if each.recovered_s is not None)
            away = sorted(each.away_s for each in mine)[len(mine) // 2]
            numbers.append(
                (row.strategy, name, number(away),
                 spread((came[0], came[len(came) // 2], came[-1])) if came else "not in the load",
                 f"{len(came)} of {len(mine)}")
            )  # fmt: skip
        points = [(row.strategy, each.recovered_s) for row in rows for each in row.recoveries
                  if (each.fault, each.at_s) == fault and each.recovered_s is not None]  # fmt: skip
        figure.add_scatter(
            x=[seconds for _, seconds in points], y=[strategy for strategy, _ in points],
            name=name, mode="markers", marker={"size": 10},
            hovertemplate="%{y}: %{x:.3g} s",
        )  # fmt: skip
    figure.update_xaxes(title="seconds after the server was back", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", automargin=True)
    worst = [(row, slowest_recovery(row.recoveries)) for row in rows]
    never = [row.strategy for row, seconds in worst if seconds is None]
    said = "How long it took to be at 90 % of the rate before the fault, a point for each round."
    if never:
        said += f" Not always in the load: {', '.join(never)}."
    head = ("strategy", "fault", "away s", "recovered s", "rounds")
    return tall(chart_of(figure, "Recovery after a fault", said, head, numbers), len(rows))


def _rates(part: Part) -> Chart:
    rows = [row for row in part.rows if row.ratio]
    figure = go.Figure()
    for row in rows:
        least, median, most = row.ratio or (0.0, 0.0, 0.0)
        figure.add_scatter(
            x=[median],
            y=[row.strategy],
            name=row.strategy,
            mode="markers",
            marker={"size": 11, "symbol": "circle" if row.audit == "passed" else "circle-open"},
            error_x={"type": "data", "symmetric": False, "array": [most - median],
                     "arrayminus": [median - least]},
        )  # fmt: skip
    figure.add_vline(x=1, line_dash="dot", line_color="#57606a")
    title = f"writes/s, as a multiple of {part.baseline}"
    shown = [1.0, *(end for row in rows for end in row.ratio or ())]
    figure.update_xaxes(type="log", title=title, **ticks(shown))
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(showlegend=False)
    own = [row for row in rows if not row.reference]
    best = max(own, key=lambda row: row.ratio[1] if row.ratio else 0)
    said = (
        f"No strategy answered more writes than {part.baseline}"
        if best.strategy == part.baseline
        else f"{best.strategy} answered {spread(best.ratio)} times the writes of {part.baseline}"
    )
    said += (
        ": the median of the rounds with its 95 % interval; ~: no difference could be shown; "
        "hollow: the audit did not pass."
    )
    numbers = [(row.strategy, ratio_of(row)) for row in rows]
    title = "Writes per second, in the same rounds"
    return tall(chart_of(figure, title, said, ("strategy", "ratio"), numbers), len(rows))


def _latencies(rows: Sequence[Row]) -> Chart:
    figure = go.Figure()
    for row in rows:
        figure.add_scatter(
            x=[1 / (1 - share) for share, _ in row.percentiles],
            y=[ms for _, ms in row.percentiles],
            customdata=[f"{100 * share:g} %" for share, _ in row.percentiles],
            name=row.strategy,
            mode="lines+markers",
            hovertemplate="%{customdata} within %{y:.3g} ms",
        )
    shares = (2, 10, 100, 1000, 10_000, 100_000)
    figure.update_xaxes(
        type="log",
        title="share of the calls",
        tickvals=shares,
        ticktext=[f"{100 - 100 / share:g} %" for share in shares],
    )
    times = [ms for row in rows for _, ms in row.percentiles]
    figure.update_yaxes(type="log", title="ms", **ticks(times))
    worst = max(rows, key=lambda row: row.p99_ms)
    said = f"99 of 100 calls were answered within {number(worst.p99_ms)} ms"
    if len(rows) > 1:
        best = min(rows, key=lambda row: row.p99_ms)
        said += f" or sooner: {best.strategy} {number(best.p99_ms)}, {worst.strategy} the slowest"
    said += "."
    numbers = [
        (row.strategy, f"{100 * share:g} %", number(ms))
        for row in rows
        for share, ms in row.percentiles
    ]
    return chart_of(figure, "Latency by percentile", said, ("strategy", "share", "ms"), numbers)


def _freshness(rows: Sequence[Row]) -> Chart:
    """What a strategy pays to be fresh, and to be fast."""
    figure = go.Figure()
    # A logarithmic axis has no 0: what was never stale is drawn at its left end.
    stale = [row.stale_p99_ms for row in rows if row.stale_p99_ms]
    exact = min(stale, default=1.0) / 10
    most = max((row.transactions_per_write or 0 for row in rows), default=0) or 1
    for row in rows:
        work = row.transactions_per_write or 0
        symbol = "circle" if work else "diamond"
        figure.add_scatter(
            x=[row.stale_p99_ms or exact],
            y=[row.p99_ms],
            name=row.strategy,
            mode="markers",
            # The area says how much: the diameter is its root.
            marker={"size": 12 + 40 * (work / most) ** 0.5,
                    "symbol": f"{symbol}-open" if row.audit.startswith("FAILED") else symbol},
        )  # fmt: skip
    ages = [exact, *(ms for ms in (1e-3, 1e-2, 0.1, 1, 10, 100, 1e3, 1e4) if ms > 3 * exact)]
    figure.update_xaxes(
        type="log",
        title="p99 staleness of reads, ms",
        tickvals=ages,
        ticktext=["exact", *(f"{ms:g}" for ms in ages[1:])],
    )
    figure.update_yaxes(type="log", title="p99 latency, ms", **ticks(row.p99_ms for row in rows))
    figure.update_layout(legend_itemsizing="constant")
    said = (
        "To the left reads are fresher, below calls are faster; the larger the circle, the more "
        "transactions of the database for each write, or a diamond where they were not counted; "
        "hollow: the audit did not pass."
    )
    head = ("strategy", "p99 ms", "p99 staleness ms", "transactions a write", "CPU us a call")
    numbers = [
        (row.strategy, number(row.p99_ms), number(row.stale_p99_ms or 0),
         "" if row.transactions_per_write is None else number(row.transactions_per_write),
         "" if row.cpu_us is None else number(row.cpu_us))
        for row in rows
    ]  # fmt: skip
    return chart_of(figure, "Latency and staleness", said, head, numbers)


def _staleness(rows: Sequence[Row]) -> Chart:
    figure = go.Figure()
    listed = []
    for row in rows:
        total = sum(count for _, count in row.staleness)
        so_far, shares = 0, []
        for _, count in row.staleness:
            so_far += count
            shares.append(100 * so_far / total)
        ages = [ms for ms, _ in row.staleness]
        figure.add_scatter(
            x=[max(ms, 0.001) for ms in ages], y=shares, name=row.strategy, mode="lines+markers",
            line_shape="hv", hovertemplate="%{y:.4g} % at most %{x:.3g} ms",
        )  # fmt: skip
        listed += [
            (row.strategy, number(ms), f"{share:.4g} %")
            for ms, share in zip(ages, shares, strict=True)
        ]
    figure.update_xaxes(type="log", title="ms", dtick=1)
    figure.update_yaxes(title="% of the reads", range=[0, 101])
    worst = max(rows, key=lambda row: row.stale_p99_ms or 0)
    said = (
        f"How stale reads were: 99 of 100 at most {number(worst.stale_p99_ms or 0)} "
        f"ms, {worst.strategy} the stalest. 0 is drawn at 0.001."
    )
    return chart_of(figure, "Staleness of reads", said, ("strategy", "ms", "reads"), listed)


def _faults(measured: Measured) -> list[tuple[str, float, float]]:
    """Names, and seconds from the start of the warm-up: as they went or were planned."""
    went = [
        (each.fault, each.from_s, each.from_s + each.away_s)
        for part in measured.parts for row in part.rows for each in row.recoveries
    ]  # fmt: skip
    first = measured.warmup_s
    return went or [
        (fault.name, first + fault.from_s, first + fault.until_s) for fault in measured.faults
    ]


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
        yaxis2={"title": "p99 ms", "overlaying": "y", "side": "right", "rangemode": "tozero"},
    )
    said = "Grey: the warm-up, which the figures leave out."
    if measured.faults:
        said += " Red: " + ", ".join(fault.name for fault in measured.faults) + "."
    if recovered:
        said += " Green: when the rate was at 90 % of the one before."
    columns = list(series)
    rows = [[number(series[name][row]) for name in columns] for row in range(len(at))]
    return chart_of(figure, "As it went", said, columns, rows)


def of_part(part: Part) -> list[Chart]:
    charts = []
    if len([row for row in part.rows if row.ratio]) > 1:
        charts.append(_rates(part))
    if part.rows:
        charts.append(_latencies(part.rows))
    read = [row for row in part.rows if row.stale_p99_ms is not None]
    if any(row.stale_p99_ms for row in read):
        charts += [_freshness(read), _staleness(read)]
    if any(row.log_bytes or row.server_ms for row in part.rows):
        charts.append(_paid(part.rows))
    if any(row.recoveries for row in part.rows):
        charts.append(_recovery([row for row in part.rows if row.recoveries]))
    return charts


def of_time(measured: Measured) -> list[Chart]:
    """The run second by second; nothing for a comparison."""
    return [_timeline(measured)] if measured.series else []
