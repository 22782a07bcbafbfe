"""The page of `hotcount report`: tables and charts, all in one file."""

from __future__ import annotations

import html as markup
from collections.abc import Iterable, Sequence

from plotly.offline import get_plotlyjs

from hotcount._report_charts import number, of_databases, of_part, of_time, ratio_of, spread
from hotcount._report_studies import charts_of, sentences_of
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
th, td { padding: .3rem .6rem; border-bottom: 1px solid #d0d7de; text-align: right;
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
ul { margin: 0; padding-left: 1.2rem; }
p, li { max-width: 62rem; overflow-wrap: anywhere; }
.passed { color: #1a7f37; } .broken { color: #b42318; font-weight: 600; } .open { color: #9a6700; }
code { overflow-wrap: anywhere; }
summary { cursor: pointer; color: #57606a; }
"""
CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["lasso2d"]}


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag}>{cell}</{tag}>" for cell in row)

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<div class=table><table><tr>{cells(head, 'th')}</tr>{body}</table></div>"


def _class_of(verdict: str) -> str:
    if verdict.startswith("FAILED"):
        return "broken"
    return "passed" if verdict == "passed" else "open"


def _scorecard(part: Part) -> str:
    compared = any(row.ratio for row in part.rows)
    head = ["strategy", "audit", "writes/s", *([f"x {part.baseline}"] if compared else [])]
    told = any(row.reads for row in part.rows)
    head += ["p50 ms", "p99 ms", "without an answer"]
    head += ["reads promised", "stale reads"] if told else []
    rows = []
    meanings = []
    for row in part.rows:
        cells = [row.strategy, spread(row.writes_per_s)]
        cells += [ratio_of(row)] if compared else []
        cells += [number(row.p50_ms), number(row.p99_ms)]
        ends = {"failed": row.failed, "unknown": row.unknown, "unserved": row.unserved}
        cells.append(
            ", ".join(f"{number:,} {end}" for end, number in ends.items() if number) or "0"
        )
        cells += [row.promise or "nothing", row.reads or "not checked"] if told else []
        cells = [markup.escape(cell) for cell in cells]
        verdict = f"<span class={_class_of(row.audit)}>{markup.escape(row.audit)}</span>"
        cells.insert(1, verdict)
        rows.append(cells)
        if row.reference:
            continue
        means = f"when answered, {row.acknowledged}; may lose: {row.may_lose}"
        meanings.append(f"<li><b>{markup.escape(row.strategy)}</b>: {markup.escape(means)}</li>")
    what = "What an acknowledgement means"
    return _table(head, rows) + f"<h3>{what}</h3><ul>{''.join(meanings)}</ul>"


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


def _fastest(part: Part) -> Row:
    candidates = [row for row in part.rows if not row.reference] or list(part.rows)
    return max(candidates, key=lambda row: row.writes_per_s[1])


def _first_sentence(part: Part) -> str:
    if not part.rows:
        return "nothing was measured"
    fastest = _fastest(part)
    lost = [row.strategy for row in part.rows if row.audit.startswith("FAILED")]
    said = f"{fastest.strategy} with {number(fastest.writes_per_s[1])} writes/s"
    if lost:
        said += f"; the audit found a broken promise of {', '.join(lost)}"
    return markup.escape(said)


def _sentences(part: Part) -> str:
    """What anyone wants to know first."""
    lost = [row for row in part.rows if row.audit.startswith("FAILED")]
    audited = [row for row in part.rows if row.audit != "not audited"]
    fastest = _fastest(part)
    several = len([row for row in part.rows if not row.reference]) > 1
    did = "was the fastest with" if several else "answered"
    said = [f"{fastest.strategy} {did} {spread(fastest.writes_per_s)} writes/s"]
    if fastest.ratio and fastest.strategy != part.baseline:
        said[0] += f", {spread(fastest.ratio)} times {part.baseline}"
        if not fastest.difference:
            said[0] += "; these rounds could not show that this is more than noise"
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
        places = dict.fromkeys(row.place for row in part.rows)
        said.append(
            f"<p class=soft>{markup.escape(part.load)}. {markup.escape('; '.join(places))}</p>"
        )
        said += [_reasons(part), _scorecard(part)]
        said += [_drawn(chart) for chart in of_part(part)]
    said += [_drawn(chart) for chart in of_time(measured)]
    if measured.study:
        said += [f"<p>{markup.escape(each)}.</p>" for each in sentences_of(measured)]
        said += [_drawn(chart) for chart in charts_of(measured)]
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
