"""The charts of `hotcount.report`, by plotly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hotcount._report_numbers import (
    OWN_SHARES,
    can_tell,
    is_known,
    number,
    percentile_of,
    ratio_of,
    spread,
    whole,
)
from hotcount._report_rows import WORKLOADS
from hotcount.report import Chart, Part, Recovery, Row

COLOURS = (
    "#2f6fde", "#d1680f", "#1a7f37", "#8250df", "#b42318", "#57606a", "#0a7e8c", "#bf8700",
    "#c2307a", "#6b4f2a", "#5a9e00", "#00539c",
)  # fmt: skip


def ticks(values: Iterable[float]) -> dict[str, Any]:
    """The ticks of a logarithmic axis. By itself plotly writes no whole numbers on an axis of less
    than a decade, and bare digits between the decades of a longer one.
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
    # Those at the ends may be outside of what is drawn.
    if len([each for each in at if least <= each <= most]) < 3:
        step = next(each for each in steps if each >= (most - least) / 6)
        at = [nth * step for nth in range(math.floor(least / step), math.ceil(most / step) + 1)]
        at = [each for each in at if each > 0]
    if least == most:
        at = [float(f"{least:.3g}")]
    return {"tickvals": at, "ticktext": [f"{each:,.9g}" for each in at]}


def chart_of(
    figure: Any, title: str, said: str, head: Sequence[str], numbers: Iterable[Sequence[str]]
) -> Chart:
    """A chart in the looks that all have."""
    figure.update_xaxes(separatethousands=True)
    figure.update_yaxes(separatethousands=True)
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


def meaning(rows: Sequence[Row]) -> str:
    """The meaning of a figure with two others in brackets."""
    rounds = max(row.rounds for row in rows)
    if rounds == 1:
        return "of one round"
    ends = (
        "with its 95 % interval"
        if any(row.interval for row in rows)
        else "from the least to the most"
    )
    return f"the median of {rounds} rounds, {ends}"


def colour_of(nth: int) -> str:
    """The same in each chart, though a chart may leave a strategy out."""
    return COLOURS[nth % len(COLOURS)]


def symbol_of(row: Row) -> str:
    return "circle" if row.audit.startswith(("passed", "allowed")) else "circle-open"


def _databases(parts: Sequence[Part]) -> Chart:
    """Writes per second; in an open loop, where all are told the rate, p99 latency."""
    figure = go.Figure()
    numbers: list[tuple[str, ...]] = []
    is_open = parts[0].rate_per_s is not None
    shown: list[float] = []
    for part in parts:
        own = [row for row in part.rows if not row.reference]
        if is_open:
            rows = [row for row in own if is_known(row)]
            threes = [
                (ends[0], row.p99_ms, ends[1])
                for row in rows
                for ends in [row.p99_interval_ms or (row.p99_ms, row.p99_ms)]
            ]
            numbers += [(row.strategy, part.database, percentile_of(row), row.audit) for row in own]
        else:
            rows = [row for row in own if row.writes_per_s[1] > 0]
            threes = [row.writes_per_s for row in rows]
            numbers += [
                (row.strategy, part.database, spread(row.writes_per_s, whole), row.audit)
                for row in rows
            ]
        shown += [each for three in threes for each in three]
        figure.add_scatter(
            x=[middle for _, middle, _ in threes],
            y=[row.strategy for row in rows],
            name=part.database,
            mode="markers",
            marker={"size": 11, "symbol": [symbol_of(row) for row in rows]},
            error_x={"type": "data", "symmetric": False,
                     "array": [max(0, most - middle) for _, middle, most in threes],
                     "arrayminus": [max(0, middle - least) for least, middle, _ in threes]},
        )  # fmt: skip
    unit = "p99 ms" if is_open else "writes/s"
    figure.update_xaxes(type="log", title=unit, **ticks(shown))
    figure.update_yaxes(autorange="reversed", automargin=True)
    names = " and ".join(part.database for part in parts)
    all_rows = [row for part in parts for row in part.rows]
    what = "p99 latency of all rounds" if is_open else meaning(all_rows)
    said = (
        f"{WORKLOADS.get(parts[0].workload, parts[0].workload)} on {names}: {what}. "
        "They ran one database after another, so nobody tested a difference between "
        "two databases; hollow: the audit did not pass."
    )
    title = "p99 latency on each database" if is_open else "Writes per second on each database"
    head = ("strategy", "database", unit, "audit")
    longest = max(len(part.rows) for part in parts)
    return tall(chart_of(figure, title, said, head, numbers), longest)


def tall(chart: Chart, rows: int, each: int = 26) -> Chart:
    """With room for so many names, one below another."""
    chart.figure.update_layout(height=max(380, 150 + each * rows))
    return chart


# A server's costs of a write: the attribute of a row, the axis, and the name in the text.
PAID = (
    ("log_bytes", "bytes of log for each write"),
    ("commits", "commits for each write"),
    ("server_ms", "ms of the servers' processor time for each write"),
)


def _paid(rows: Sequence[Row]) -> Chart:
    kinds = [(name, title) for name, title in PAID if any(getattr(row, name) for row in rows)]
    # In pixels: a chart, and between two of them the ticks of the one and the title of the other.
    chart, gap, above, below = 24 + 24 * len(rows), 60, 30, 40
    drawn_height = len(kinds) * chart + (len(kinds) - 1) * gap
    figure = make_subplots(
        rows=len(kinds), cols=1, subplot_titles=[title for _, title in kinds],
        vertical_spacing=gap / drawn_height if len(kinds) > 1 else 0,
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
    figure.update_layout(height=above + drawn_height + below, margin={"t": above, "b": below})
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


def _ratios(part: Part) -> Chart:
    """Of writes per second, where more is better; in an open loop of p99, where less is."""
    is_open = part.rate_per_s is not None
    rows = [row for row in part.rows if row.ratio]
    figure = go.Figure()
    for row in rows:
        least, median, most = row.ratio or (0.0, 0.0, 0.0)
        figure.add_scatter(
            x=[median],
            y=[row.strategy],
            name=row.strategy,
            mode="markers",
            marker={"size": 11, "symbol": symbol_of(row)},
            error_x={"type": "data", "symmetric": False, "array": [most - median],
                     "arrayminus": [median - least]},
        )  # fmt: skip
    figure.add_vline(x=1, line_dash="dot", line_color="#57606a")
    what = "p99 latency" if is_open else "writes/s"
    shown = [1.0, *(end for row in rows for end in row.ratio or ())]
    axis = f"{what}, as a multiple of {part.baseline}"
    figure.update_xaxes(type="log", title=axis, **ticks(shown))
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(showlegend=False)
    own = [row for row in rows if not row.reference]
    best = (min if is_open else max)(own, key=lambda row: row.ratio[1] if row.ratio else 0)
    if best.strategy == part.baseline:
        said = (
            f"No strategy had a lower p99 latency than {part.baseline}"
            if is_open
            else f"No strategy answered more writes than {part.baseline}"
        )
    elif is_open:
        said = f"{best.strategy} had {spread(best.ratio)} times the p99 of {part.baseline}"
    else:
        said = f"{best.strategy} answered {spread(best.ratio)} times the writes "
        said += f"of {part.baseline}"
    said += f": {meaning(rows)}; "
    if any(row.interval for row in rows):
        said += "~: no difference could be shown; "
    said += "hollow: the audit did not pass."
    said += _overloaded(part.rows)
    numbers = [(row.strategy, ratio_of(row)) for row in part.rows]
    title = f"{'p99 latency' if is_open else 'Writes per second'}, in the same rounds"
    return tall(chart_of(figure, title, said, ("strategy", "ratio"), numbers), len(rows))


def _overloaded(rows: Sequence[Row]) -> str:
    names = ", ".join(row.strategy for row in rows if row.overloaded)
    return f" Overloaded, so without percentiles: {names}." if names else ""


def _said_of_latency(rows: Sequence[Row]) -> str:
    """`rows` are without those that were overloaded."""
    timed = [row for row in rows if is_known(row)]
    others = [row for row in rows if row not in timed]
    said = []
    if timed:
        worst = max(timed, key=lambda row: row.p99_ms)
        said.append(f"99 of 100 calls were answered within {number(worst.p99_ms)} ms")
        if len(timed) > 1:
            best = min(timed, key=lambda row: row.p99_ms)
            said[0] += f" or sooner: {best.strategy} {number(best.p99_ms)}, "
            said[0] += f"{worst.strategy} the slowest"
    for row in others:
        of = f" of {row.strategy}" if len(rows) > 1 else ""
        if not can_tell(row.calls, 0.99):
            said.append(f"Fewer than 100 calls{of} have no 99 %")
            continue
        said.append(
            f"More than 1 of 100 calls{of} failed or had no answer; half were answered within "
            f"{number(row.p50_ms)} ms"
            if is_known(row, "p50")
            else f"More than half of the calls{of} failed or had no answer"
        )
    return " ".join(f"{each}." for each in said)


def _latencies(all_rows: Sequence[Row]) -> Chart:
    figure = go.Figure()
    rows = [row for row in all_rows if not row.overloaded]
    for nth, row in enumerate(all_rows):
        if row.overloaded:
            continue
        figure.add_scatter(
            x=[1 / (1 - share) for share, _ in row.percentiles],
            y=[ms for _, ms in row.percentiles],
            customdata=[f"{100 * share:g} %" for share, _ in row.percentiles],
            name=row.strategy,
            mode="lines+markers",
            line_color=colour_of(nth),
            hovertemplate="%{customdata} within %{y:.3g} ms",
        )
    shares = (2, 10, 100, 1000, 10_000, 100_000)
    figure.update_xaxes(
        type="log",
        title="share of the calls",
        tickvals=shares,
        ticktext=[f"{100 - 100 / share:g} %" for share in shares],
    )
    shown = [ms for row in rows for _, ms in row.percentiles]
    figure.update_yaxes(type="log", title="ms", **ticks(shown))
    said = _said_of_latency(rows) + _overloaded(all_rows)
    if any(len(row.percentiles) > len(OWN_SHARES) for row in rows):
        said += (
            " At 50, 90, 99 and 99.9 % are the figures of the measured window. The points between "
            "are of the log, which files a call under the second in which it ended; those that "
            "calls from outside the window could move are left out."
        )
    numbers = [
        (row.strategy, f"{100 * share:g} %", number(ms))
        for row in rows
        for share, ms in row.percentiles
    ]
    return chart_of(figure, "Latency by percentile", said, ("strategy", "share", "ms"), numbers)


def _freshness(all_rows: Sequence[Row]) -> Chart:
    """The staleness of each strategy against its throughput."""
    figure = go.Figure()
    rows = [row for row in all_rows if is_known(row)]
    # A logarithmic axis has no 0: a strategy without staleness is drawn at its left end.
    stale = [row.stale_p99_ms for row in rows if row.stale_p99_ms]
    exact = min(stale, default=1.0) / 10
    most = max((row.transactions_per_write or 0 for row in rows), default=0) or 1
    for nth, row in enumerate(all_rows):
        if row not in rows:
            continue
        work = row.transactions_per_write or 0
        symbol = "circle" if work else "diamond"
        figure.add_scatter(
            x=[row.stale_p99_ms or exact],
            y=[row.p99_ms],
            name=row.strategy,
            mode="markers",
            # The area says how much: the diameter is its root.
            marker={"color": colour_of(nth), "size": 12 + 40 * (work / most) ** 0.5,
                    "symbol": f"{symbol}-open" if row.audit.startswith("broken") else symbol},
        )  # fmt: skip
    axis = ticks(stale)
    ages = [(ms, text) for ms, text in zip(axis.get("tickvals", ()), axis.get("ticktext", ()),
                                           strict=True) if ms > 3 * exact]  # fmt: skip
    figure.update_xaxes(
        type="log",
        title="p99 staleness of reads, ms",
        tickvals=[exact, *(ms for ms, _ in ages)],
        ticktext=["exact", *(text for _, text in ages)],
        tickangle=0,
    )
    figure.update_yaxes(type="log", title="p99 latency, ms", **ticks(row.p99_ms for row in rows))
    figure.update_layout(legend_itemsizing="constant")
    said = (
        "To the left reads are fresher, below calls are faster; the larger the circle, the more "
        "transactions of the database for each write, or a diamond where they were not counted; "
        "hollow: the audit did not pass."
    )
    said += _overloaded(all_rows)
    head = ("strategy", "p99 ms", "p99 staleness ms", "transactions a write", "CPU us a call")
    numbers = [
        (row.strategy, percentile_of(row), number(row.stale_p99_ms or 0),
         "" if row.transactions_per_write is None else number(row.transactions_per_write),
         "" if row.cpu_us is None else number(row.cpu_us))
        for row in all_rows
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


def of_part(part: Part) -> list[Chart]:
    charts = []
    if len([row for row in part.rows if row.ratio]) > 1:
        charts.append(_ratios(part))
    if any(not row.overloaded for row in part.rows):
        charts.append(_latencies(part.rows))
    read = [row for row in part.rows if row.stale_p99_ms is not None]
    if any(row.stale_p99_ms for row in read):
        charts += [_freshness(read), _staleness(read)]
    if any(row.log_bytes or row.server_ms for row in part.rows):
        charts.append(_paid(part.rows))
    if any(row.recoveries for row in part.rows):
        charts.append(_recovery([row for row in part.rows if row.recoveries]))
    return charts
