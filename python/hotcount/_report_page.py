"""The page of `hotcount report`: tables and charts, all in one file."""

from __future__ import annotations

import html as markup
import re
from collections.abc import Iterable, Sequence

from plotly.offline import get_plotlyjs

from hotcount._report_charts import meaning, of_databases, of_part
from hotcount._report_numbers import is_known, number, percentile_of, ratio_of, spread, whole
from hotcount._report_rows import kept
from hotcount._report_studies import (
    charts_of,
    load_and_places_of,
    meanings_of,
    scorecard_of,
    sentences_of,
)
from hotcount._report_time import of_time
from hotcount.report import Chart, Measured, Part, Row

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 78rem; padding: 1rem; color: #1b1f24; background: #fff;
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { font-size: 1.25rem; margin: 2rem 0 .25rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
p { margin: .25rem 0; } .soft { color: #57606a; }
.table { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #d0d7de; text-align: right; }
th { vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
ul { margin: 0; padding-left: 1.2rem; }
p, li { max-width: 62rem; overflow-wrap: anywhere; }
.passed { color: #1a7f37; } .broken { color: #b42318; font-weight: 600; } .open { color: #9a6700; }
code { overflow-wrap: anywhere; }
summary { cursor: pointer; color: #57606a; }
"""
# The buttons of plotly would lie on the data.
CONFIG = {"displayModeBar": False, "responsive": True}


def _unbroken(cell: str) -> str:
    """A line may end before a bracket; not in it, before ~, or between a number and its word."""
    cell = re.sub(r"\([^)]*\)", lambda found: found[0].replace(" ", "\u00a0"), cell)
    return re.sub(r"(?<=\d) (?=[A-Za-z%])|(?<=\)) (?=~)", "\u00a0", cell)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """`head` is text, `rows` are markup."""
    named = "".join(f"<th>{markup.escape(each)}</th>" for each in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{_unbroken(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<div class=table><table><tr>{named}</tr>{body}</table></div>"


def _class_of(verdict: str) -> str:
    if verdict.startswith("broken"):
        return "broken"
    return "passed" if verdict == "passed" else "open"


def _audit_cell(audit: str) -> str:
    return f"<span class={_class_of(audit)}>{markup.escape(audit)}</span>"


def _scorecard(part: Part) -> str:
    compared = any(row.ratio for row in part.rows)
    is_open = part.rate_per_s is not None
    # All strategies of an open loop are told the rate: it says nothing of them.
    told_rate = any(row.offered is not None for row in part.rows)
    head = ["strategy", "audit", "offered" if told_rate else "writes/s"]
    head += [f"{'p99 ' if is_open else ''}x {part.baseline}"] if compared else []
    told = any(row.reads for row in part.rows)
    head += ["p50 ms", "p99 ms", "without an answer"]
    head += ["reads promised", "stale reads"] if told else []
    rows = []
    meanings = []
    for row in part.rows:
        cells = [row.strategy]
        if told_rate:
            share = f"{100 * (row.offered or 0):.1f} %"
            cells.append(f"{share} overloaded" if row.overloaded else share)
        else:
            cells.append(spread(row.writes_per_s, whole))
        cells += [ratio_of(row)] if compared else []
        cells += [percentile_of(row, "p50"), percentile_of(row)]
        ends = {"failed": row.failed, "unknown": row.unknown, "unserved": row.unserved}
        cells.append(
            ", ".join(f"{number:,} {end}" for end, number in ends.items() if number) or "0"
        )
        cells += [row.promise or "nothing", row.reads or "not checked"] if told else []
        cells = [markup.escape(cell) for cell in cells]
        cells.insert(1, _audit_cell(row.audit))
        rows.append(cells)
        if not row.reference:
            meanings.append((row.strategy, row.acknowledged, row.may_lose))
    return _table(head, rows) + _meanings(meanings)


def _meanings(of: Iterable[tuple[str, str, str]]) -> str:
    """Of strategies: what it means that one answered, and what it may lose."""
    listed = "".join(
        f"<li><b>{markup.escape(name)}</b>: "
        f"{markup.escape(f'when answered, {acknowledged}; may lose: {may_lose}')}</li>"
        for name, acknowledged, may_lose in of
    )
    return f"<h3>What an acknowledgement means</h3><ul>{listed}</ul>"


def _places(places: Iterable[str]) -> str:
    """Where the counts were; what several places have in common, once."""
    return "; ".join(dict.fromkeys(each for place in places for each in place.split("; ")))


def _brackets(part: Part) -> str:
    """The meaning of the three numbers in a cell of the table."""
    has_three = part.rate_per_s is None or any(row.ratio for row in part.rows)
    if not has_three or all(row.rounds == 1 for row in part.rows):
        return ""
    return f". Figures with brackets are {meaning(part.rows)}."


def _drawn(chart: Chart) -> str:
    drawn = chart.figure.to_html(full_html=False, include_plotlyjs=False, config=CONFIG)
    label = markup.escape(f"{chart.title}. {chart.said}", quote=True)
    numbers = _table(chart.head, [[markup.escape(cell) for cell in row] for row in chart.numbers])
    return (
        f"<h3>{markup.escape(chart.title)}</h3><p class=soft>{markup.escape(chart.said)}</p>"
        f'<div role="img" aria-label="{label}">{drawn}</div>'
        f"<details><summary>The numbers</summary>{numbers}</details>"
    )


def _anchor(measured: Measured, part: Part) -> str:
    return markup.escape(f"{measured.folder.resolve().name}-{part.title}".replace(" ", "-"), True)


def _first(part: Part) -> Row | None:
    """The fastest; in an open loop the one with the lowest p99, and None if none has any."""
    candidates = [row for row in part.rows if not row.reference] or list(part.rows)
    if part.rate_per_s is None:
        return max(candidates, key=lambda row: row.writes_per_s[1])
    carried = [row for row in candidates if is_known(row)]
    return min(carried, key=lambda row: row.p99_ms, default=None)


def _is_compared(part: Part) -> bool:
    return len([row for row in part.rows if not row.reference]) > 1


def _load_in_words(part: Part) -> str:
    return f"{number(part.rate_per_s or 0)} operations/s"


def _none_carried(part: Part) -> str:
    if all(row.overloaded for row in part.rows):
        return f"No strategy carried {_load_in_words(part)}"
    return f"No strategy answered 99 of 100 calls of {_load_in_words(part)}"


def _of_first(part: Part) -> str:
    """The first strategy and its result, as text."""
    first = _first(part)
    if first is None:
        return _none_carried(part)
    if part.rate_per_s is None:
        return f"{first.strategy} with {whole(first.writes_per_s[1])} writes/s"
    return f"{first.strategy} with a p99 of {number(first.p99_ms)} ms"


def _first_sentence(part: Part) -> str:
    if not part.rows:
        return "nothing was measured"
    lost = [row.strategy for row in part.rows if row.audit.startswith("broken")]
    said = _of_first(part)
    if lost:
        said += f"; the audit found a broken promise of {', '.join(lost)}"
    return markup.escape(said)


def _who_was_first(part: Part) -> str:
    first = _first(part)
    several = _is_compared(part)
    if part.rate_per_s is not None and several:
        if first is None:
            return _none_carried(part)
        said = (
            f"{first.strategy} had the lowest p99 of those that carried {_load_in_words(part)}, "
            f"{number(first.p99_ms)} ms"
        )
        of = "the p99 of "
    else:
        row = first or part.rows[0]
        did = "was the fastest with" if several else "answered"
        said = f"{row.strategy} {did} {spread(row.writes_per_s, whole)} writes/s"
        of = ""
    if first is not None and first.ratio and first.strategy != part.baseline:
        said += f", {spread(first.ratio)} times {of}{part.baseline}"
        if not first.difference:
            said += "; these rounds could not show that this is more than noise"
    return said


def _sentences(part: Part) -> str:
    """The summary of a part: the first strategy, and whether the audit found losses."""
    lost = [row for row in part.rows if row.audit.startswith("broken")]
    audited = [row for row in part.rows if row.audit != "not audited"]
    said = [_who_was_first(part)]
    if lost:
        said.append(
            "The audit found a broken promise of " + ", ".join(row.strategy for row in lost)
        )
    elif len(audited) == len(part.rows):
        said.append(kept({row.strategy: row.allowed for row in part.rows}))
    else:
        names = [row.strategy for row in part.rows if row.audit == "not audited"]
        said.append(f"The counts of {', '.join(names)} were not audited")
    return "".join(f"<p>{markup.escape(each)}.</p>" for each in said)


def _reasons(part: Part) -> str:
    said = [f"{row.strategy}: {reason}" for row in part.rows for reason in row.reasons]
    return "".join(f"<p class=open>{markup.escape(each)}</p>" for each in [*part.notes, *said])


def _section(measured: Measured) -> str:
    name = markup.escape(measured.folder.resolve().name)
    said = [
        f"<h2>{name}: <span class={_conclusion_class(measured)}>{measured.conclusion}</span></h2>"
    ]
    said += [f"<p class=open>{markup.escape(note)}</p>" for note in measured.notes]
    if len(measured.parts) > 1:
        links = (
            f'<li><a href="#{_anchor(measured, part)}">{markup.escape(part.heading)}</a>: '
            f"{_first_sentence(part)}</li>"
            for part in measured.parts
        )
        said.append(f"<ul>{''.join(links)}</ul>")
        said += [_drawn(chart) for chart in of_databases(measured.parts)]
    for part in measured.parts:
        if len(measured.parts) > 1:
            said.append(f'<h2 id="{_anchor(measured, part)}">{markup.escape(part.heading)}</h2>')
        if not part.rows:
            said.append("<p class=open>Nothing was measured.</p>")
            continue
        said.append(_sentences(part))
        where = f"{part.load}. {_places(row.place for row in part.rows)}{_brackets(part)}"
        said.append(f"<p class=soft>{markup.escape(where)}</p>")
        said += [_reasons(part), _scorecard(part)]
        said += [_drawn(chart) for chart in of_part(part)]
    said += [_drawn(chart) for chart in of_time(measured)]
    if measured.study:
        said.append(_study(measured))
    said.append(
        f"<p class=soft>{markup.escape(measured.started)}; {markup.escape(measured.machine)}; "
        f"{markup.escape(measured.versions)}</p><p><code>{markup.escape(measured.command)}</code></p>"
    )
    return "".join(said)


def _study(measured: Measured) -> str:
    """A search, sweep or scale."""
    said = [f"<p>{markup.escape(each)}.</p>" for each in sentences_of(measured)]
    load, places = load_and_places_of(measured)
    if load:
        said.append(f"<p class=soft>{markup.escape(f'{load}. {_places(places)}')}</p>")
    head, rows = scorecard_of(measured)
    said.append(
        _table(
            head,
            [[markup.escape(row[0]), _audit_cell(row[1]), *map(markup.escape, row[2:])]
             for row in rows],
        )
    )  # fmt: skip
    said.append(_meanings(meanings_of(measured)))
    said += [_drawn(chart) for chart in charts_of(measured)]
    return "".join(said)


def _conclusion_class(measured: Measured) -> str:
    return {"passed": "passed", "broken": "broken"}.get(measured.conclusion, "open")


def html(measured: Sequence[Measured]) -> str:
    """The whole page; it loads nothing from the network."""
    sections = "".join(_section(each) for each in measured)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,"><title>hotcount-load</title>'
        f"<style>{STYLE}</style><script>{get_plotlyjs()}</script></head>"
        f"<body><h1>hotcount-load</h1>{sections}</body></html>\n"
    )
