"""The page of `hotcount report`: tables and plotly's charts, all in one file."""

from __future__ import annotations

import html as markup
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from hotcount._report import Measured, Part, Row

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 1rem; color: #1b1f24; background: #fff;
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { font-size: 1.25rem; margin: 2rem 0 .25rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
p { margin: .25rem 0; } .soft { color: #57606a; }
.table { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #d0d7de; text-align: right;
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
ul { margin: 0; padding-left: 1.2rem; }
p, li { overflow-wrap: anywhere; }
.passed { color: #1a7f37; } .broken { color: #b42318; font-weight: 600; } .open { color: #9a6700; }
code { overflow-wrap: anywhere; }
summary { cursor: pointer; color: #57606a; }
"""
COLOURS = ("#2f6fde", "#d1680f", "#1a7f37", "#8250df", "#b42318", "#57606a", "#0a7e8c", "#bf8700")
# On a phone a drag scrolls the page; it does not zoom into a chart.
CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["lasso2d"]}


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag}>{cell}</{tag}>" for cell in row)

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<div class=table><table><tr>{cells(head, 'th')}</tr>{body}</table></div>"


def _class_of(verdict: str) -> str:
    if verdict.startswith("FAILED"):
        return "broken"
    return "passed" if verdict == "passed" else "open"


def _spread(three: tuple[float, float, float] | None) -> str:
    if three is None:
        return ""
    least, median, most = three
    if least == most:
        return _number(median)
    return f"{_number(median)} ({_number(least)} to {_number(most)})"


def _scorecard(part: Part) -> str:
    compared = any(row.ratio for row in part.rows)
    head = ["strategy", "audit", "writes/s", *([f"x {part.baseline}"] if compared else [])]
    told = any(row.reads for row in part.rows)
    head += ["p50 ms", "p99 ms", "without an answer"]
    head += ["stale reads"] if told else []
    rows = []
    meanings = []
    for row in part.rows:
        cells = [row.strategy, _spread(row.writes_per_s)]
        cells += [_spread(row.ratio)] if compared else []
        cells += [_number(row.p50_ms), _number(row.p99_ms)]
        ends = {"failed": row.failed, "unknown": row.unknown, "unserved": row.unserved}
        cells.append(
            ", ".join(f"{number:,} {end}" for end, number in ends.items() if number) or "0"
        )
        cells += [row.reads] if told else []
        cells = [markup.escape(cell) for cell in cells]
        verdict = f"<span class={_class_of(row.audit)}>{markup.escape(row.audit)}</span>"
        cells.insert(1, verdict)
        rows.append(cells)
        means = f"when answered, {row.acknowledged}; may lose: {row.may_lose}"
        meanings.append(f"<li><b>{markup.escape(row.strategy)}</b>: {markup.escape(means)}</li>")
    what = "What an acknowledgement means"
    return _table(head, rows) + f"<h3>{what}</h3><ul>{''.join(meanings)}</ul>"


def _chart(figure: Any, title: str, said: str, data: str) -> str:
    """A chart, what it shows in words, and its numbers for who cannot see it."""
    figure.update_layout(
        template="plotly_white",
        colorway=COLOURS,
        height=380,
        margin={"l": 60, "r": 15, "t": 10, "b": 50},
        legend={"orientation": "h", "y": -0.25},
        dragmode=False,
        font={"family": "system-ui, sans-serif"},
    )
    drawn = figure.to_html(full_html=False, include_plotlyjs=False, config=CONFIG)
    label = markup.escape(f"{title}. {said}", quote=True)
    return (
        f"<h3>{markup.escape(title)}</h3><p class=soft>{markup.escape(said)}</p>"
        f'<div role="img" aria-label="{label}">{drawn}</div>'
        f"<details><summary>The numbers</summary>{data}</details>"
    )


def _rates(part: Part) -> str:
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
    figure.update_xaxes(type="log", title=title, dtick="D2")
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(showlegend=False)
    best = max(rows, key=lambda row: row.ratio[1] if row.ratio else 0)
    said = (
        f"{best.strategy} answered {_spread(best.ratio)} times the writes of {part.baseline}: the "
        "median of the rounds, from the least to the most; hollow: the audit did not pass."
    )
    data = _table(("strategy", "ratio"), [(row.strategy, _spread(row.ratio)) for row in rows])
    return _chart(figure, "Writes per second, in the same rounds", said, data)


def _latencies(rows: Sequence[Row]) -> str:
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
    ticks = (2, 10, 100, 1000, 10_000, 100_000)
    figure.update_xaxes(
        type="log",
        title="share of the calls",
        tickvals=ticks,
        ticktext=[f"{100 - 100 / tick:g} %" for tick in ticks],
    )
    figure.update_yaxes(type="log", title="ms", dtick="D2")
    worst = max(rows, key=lambda row: row.p99_ms)
    said = f"99 of 100 calls were answered within {_number(worst.p99_ms)} ms"
    if len(rows) > 1:
        best = min(rows, key=lambda row: row.p99_ms)
        said += f" or sooner: {best.strategy} {_number(best.p99_ms)}, {worst.strategy} the slowest"
    said += "."
    data = _table(
        ("strategy", "share", "ms"),
        [
            (row.strategy, f"{100 * share:g} %", _number(ms))
            for row in rows
            for share, ms in row.percentiles
        ],
    )
    return _chart(figure, "Latency by percentile", said, data)


def _freshness(rows: Sequence[Row]) -> str:
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
    ticks = [exact, *(t for t in (1e-3, 1e-2, 0.1, 1, 10, 100, 1e3, 1e4) if t > 3 * exact)]
    figure.update_xaxes(
        type="log",
        title="p99 staleness of reads, ms",
        tickvals=ticks,
        ticktext=["exact", *(f"{tick:g}" for tick in ticks[1:])],
    )
    figure.update_yaxes(type="log", title="p99 latency, ms", dtick="D2")
    figure.update_layout(legend_itemsizing="constant")
    said = (
        "To the left reads are fresher, below calls are faster; the larger the circle, the more "
        "transactions of the database for each write, or a diamond where they were not counted; "
        "hollow: the audit did not pass."
    )
    head = ("strategy", "p99 ms", "p99 staleness ms", "transactions a write", "CPU us a call")
    data = _table(
        head,
        [
            [markup.escape(row.strategy), _number(row.p99_ms), _number(row.stale_p99_ms or 0),
             "" if row.transactions_per_write is None else _number(row.transactions_per_write),
             "" if row.cpu_us is None else _number(row.cpu_us)]
            for row in rows
        ],
    )  # fmt: skip
    return _chart(figure, "Latency and staleness", said, data)


def _staleness(rows: Sequence[Row]) -> str:
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
            (markup.escape(row.strategy), _number(ms), f"{share:.4g} %")
            for ms, share in zip(ages, shares, strict=True)
        ]
    figure.update_xaxes(type="log", title="ms", dtick=1)
    figure.update_yaxes(title="% of the reads", range=[0, 101])
    worst = max(rows, key=lambda row: row.stale_p99_ms or 0)
    said = (
        f"How stale reads were: 99 of 100 at most {_number(worst.stale_p99_ms or 0)} "
        f"ms, {worst.strategy} the stalest. 0 is drawn at 0.001."
    )
    return _chart(figure, "Staleness of reads", said, _table(("strategy", "ms", "reads"), listed))


def _timeline(measured: Measured) -> str:
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
    for fault in measured.faults:
        begins, ends = measured.warmup_s + fault.from_s, measured.warmup_s + fault.until_s
        figure.add_vrect(
            x0=begins, x1=ends, fillcolor="#b42318", opacity=0.15, line_width=0,
            annotation_text=fault.name, annotation_position="top left",
        )  # fmt: skip
    figure.update_layout(
        xaxis={"title": "seconds"},
        yaxis={"title": "per second", "rangemode": "tozero"},
        yaxis2={"title": "p99 ms", "overlaying": "y", "side": "right", "rangemode": "tozero"},
    )
    said = "Grey: the warm-up, which the figures leave out."
    if measured.faults:
        said += " Red: " + ", ".join(fault.name for fault in measured.faults) + "."
    columns = list(series)
    rows = [[_number(series[name][row]) for name in columns] for row in range(len(at))]
    return _chart(figure, "As it went", said, _table(columns, rows))


def _sentences(part: Part) -> str:
    """What anyone wants to know first."""
    lost = [row for row in part.rows if row.audit.startswith("FAILED")]
    audited = [row for row in part.rows if row.audit != "not audited"]
    fastest = max(part.rows, key=lambda row: row.writes_per_s[1])
    did = "was the fastest with" if len(part.rows) > 1 else "answered"
    said = [f"{fastest.strategy} {did} {_spread(fastest.writes_per_s)} writes/s"]
    if fastest.ratio and fastest.strategy != part.baseline:
        said[0] += f", {_spread(fastest.ratio)} times {part.baseline}"
    if lost:
        said.append(
            "The audit found a broken promise of " + ", ".join(row.strategy for row in lost)
        )
    elif len(audited) == len(part.rows):
        said.append("The audit found every promise kept: nothing acknowledged was lost or doubled")
    else:
        names = [row.strategy for row in part.rows if row.audit == "not audited"]
        said.append("Nobody knows whether counts are right of " + ", ".join(names))
    return "".join(f"<p>{markup.escape(each)}.</p>" for each in said)


def _reasons(part: Part) -> str:
    said = [f"{row.strategy}: {reason}" for row in part.rows for reason in row.reasons]
    return "".join(f"<p class=open>{markup.escape(each)}</p>" for each in said)


def _section(measured: Measured) -> str:
    name = markup.escape(measured.folder.resolve().name)
    said = [
        f"<h2>{name}: <span class={_conclusion_class(measured)}>{measured.conclusion}</span></h2>"
    ]
    said += [f"<p class=open>{markup.escape(note)}</p>" for note in measured.notes]
    for part in measured.parts:
        if len(measured.parts) > 1:
            said.append(f"<h3>{markup.escape(part.title)}</h3>")
        said.append(_sentences(part))
        places = dict.fromkeys(row.place for row in part.rows)
        said.append(
            f"<p class=soft>{markup.escape(part.load)}. {markup.escape('; '.join(places))}</p>"
        )
        said += [_reasons(part), _scorecard(part)]
        if len([row for row in part.rows if row.ratio]) > 1:
            said.append(_rates(part))
        if part.rows:
            said.append(_latencies(part.rows))
        read = [row for row in part.rows if row.stale_p99_ms is not None]
        if any(row.stale_p99_ms for row in read):
            said += [_freshness(read), _staleness(read)]
    if measured.series:
        said.append(_timeline(measured))
    said.append(
        f"<p class=soft>{markup.escape(measured.started)}; {markup.escape(measured.machine)}; "
        f"{markup.escape(measured.versions)}</p><p><code>{markup.escape(measured.command)}</code></p>"
    )
    return "".join(said)


def _conclusion_class(measured: Measured) -> str:
    return {"passed": "passed", "broken": "broken"}.get(measured.conclusion, "open")


def html(measured: Sequence[Measured]) -> str:
    """The whole page; it asks nobody for anything."""
    sections = "".join(_section(each) for each in measured)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,"><title>hotcount-load</title>'
        f"<style>{STYLE}</style><script>{get_plotlyjs()}</script></head>"
        f"<body><h1>hotcount-load</h1>{sections}</body></html>\n"
    )
