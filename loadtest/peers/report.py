"""Figures, ratios and targets as one document, as text and as a Markdown table."""

from __future__ import annotations

import statistics
import textwrap
from typing import Any

from loadtest.peers.rounds import (
    HELD_WORST,
    OURS,
    P50,
    P99,
    RATE,
    READS_P99,
    SERVER_US,
    WORST_GAP,
    Case,
)

# Whose ratio is to be reached from above: not more than the target.
LATENCIES = (P50, P99, READS_P99, HELD_WORST, WORST_GAP, SERVER_US)

HEADINGS = {
    "sync": "Blocking calls from Python threads",
    "asyncio": "Awaited calls from asyncio tasks, 1,000 keys",
    "limits": "Awaited limits and sorted sets from asyncio tasks: calls/s",
    "limiters": "Limits: hits/s, and the server's time for a key in microseconds",
    "batch": "Batches of 1,000 adds from one Python thread",
    "sets": "Sorted sets from Python: upserts/s, and another client's wait in microseconds",
    "calls": "Calls in Python where nothing waits",
    "scripts": "Limits, op_ids and sets from Python",
    "cpp": "From C++; Go's clients with as many goroutines",
    "idle": "One idle caller in Python: microseconds a call",
    "postgres": "Votes on PostgreSQL, one item unless said",
    "postgres18": "Votes on PostgreSQL 18, one item unless said",
    "mariadb": "Votes on MariaDB, one item unless said",
    "mysql": "Votes on MySQL, one item unless said",
    "sqlite": "Votes on SQLite, one item unless said",
}


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def met(metric: str, ratio: float, target: float) -> bool:
    return ratio <= target if metric in LATENCIES else ratio >= target


def comparisons(case: Case) -> list[dict[str, Any]]:
    """Hotcount's figure over each peer's, by metric: within a round, then the median.

    What slows the machine down for a while slows both. `target` and `met` are None if nothing
    is to be reached.
    """
    ours = case.figures.get(OURS, {})
    made = []
    for peer, figures in case.figures.items():
        if peer == OURS:
            continue
        for metric, theirs in figures.items():
            if metric not in ours:
                continue
            pairs = zip(ours[metric], theirs)
            ratio = spread([our / their for our, their in pairs])
            target = case.targets.get((peer, metric))
            made.append(
                {
                    "peer": peer,
                    "metric": metric,
                    "ratio": ratio,
                    "target": target,
                    "met": None if target is None else met(metric, ratio["median"], target),
                }
            )
    return made


def summary(case: Case) -> dict[str, Any]:
    return {
        "case": case.name,
        "group": case.group,
        "figures": {
            contender: {metric: spread(values) for metric, values in figures.items()}
            for contender, figures in case.figures.items()
        },
        "by_round": case.figures,
        "ratios": comparisons(case),
    }


def number(value: float) -> str:
    """A rate or a latency: four digits, or whole from 1,000 on."""
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.4g}"


def decimal(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def ranged(of: dict[str, float], show: Any) -> str:
    return f"{show(of['median'])} ({show(of['min'])} .. {show(of['max'])})"


def target_cells(metric: str, target: float | None, reached: bool | None) -> tuple[str, str]:
    if target is None:
        return "", ""
    sign = "<=" if metric in LATENCIES else ">="
    return f"{sign} {target:g}", "met" if reached else "NOT MET"


def rows(one: dict[str, Any]) -> list[tuple[str, ...]]:
    """case, peer, ours, theirs, ratio, target, met: a row for each peer and metric."""
    ratios = {(ratio["peer"], ratio["metric"]): ratio for ratio in one["ratios"]}
    ours = one["figures"].get(OURS, {})
    made: list[tuple[str, ...]] = []
    for peer, figures in one["figures"].items():
        if peer == OURS and len(one["figures"]) > 1:
            continue
        for metric, theirs in figures.items():
            name = one["case"] if metric == RATE else f"{one['case']}, {metric.removesuffix(' us')}"
            our = ranged(ours[metric], number) if metric in ours else "-"
            if peer == OURS:
                made.append((name, "-", our, "-", "-", "", ""))
                continue
            row = [name, peer, our, ranged(theirs, number)]
            ratio = ratios.get((peer, metric))
            if ratio is None:
                row += ["-", "", ""]
            else:
                row.append(ranged(ratio["ratio"], decimal))
                row += target_cells(metric, ratio["target"], ratio["met"])
            made.append(tuple(row))
    return made


HEAD = ("case", "peer", "hotcount", "peer's", "ratio", "target", "")


def text_table(summaries: list[dict[str, Any]]) -> str:
    """Aligned columns, a heading for each group; a case's name and figure stand once."""
    lines: list[tuple[str, ...] | str] = []
    group = ""
    for one in summaries:
        if one["group"] != group:
            group = one["group"]
            lines += ["", HEADINGS[group], HEAD]
        name, our = "", ""
        for row in rows(one):
            again = row[0] == name
            ours = "" if again and row[2] == our else row[2]
            lines.append(("" if again else row[0], row[1], ours, *row[3:]))
            name, our = row[0], row[2]
    cells = [line for line in lines if not isinstance(line, str)]
    widths = [max((len(row[column]) for row in cells), default=0) for column in range(len(HEAD))]
    shown = [
        line
        if isinstance(line, str)
        else "  ".join(
            cell.ljust(width) if column in (0, 1, 6) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    ]
    return "\n".join(shown).strip("\n")


def markdown_table(summaries: list[dict[str, Any]], what: str = "adds") -> str:
    """For the README: adds a second (or microseconds), and the ratios with their range."""
    made = [f"| {what} | peer | hotcount | peer's | ratio | target |", "|---|---|---|---|---|---|"]
    for one in summaries:
        figures, ratios = one["figures"], one["ratios"]
        for ratio in ratios:
            peer, metric = ratio["peer"], ratio["metric"]
            sign, reached = target_cells(metric, ratio["target"], ratio["met"])
            unit = "" if metric == RATE else f", {metric}"
            cells = (
                f"{GROUP_WORDS[one['group']]}{one['case']}{unit}",
                peer,
                number(figures[OURS][metric]["median"]),
                number(figures[peer][metric]["median"]),
                ranged(ratio["ratio"], decimal).replace(" .. ", "-"),
                f"{sign} {reached}".strip(),
            )
            made.append(f"| {' | '.join(cells)} |")
    return "\n".join(made)


# Before a case's name if its group has no heading.
GROUP_WORDS = {
    "sync": "Python, ",
    "asyncio": "asyncio, ",
    "batch": "a batch of 1,000, ",
    "scripts": "Python, ",
    "cpp": "C++, ",
    "idle": "Python, ",
    "postgres": "PostgreSQL, ",
    "postgres18": "PostgreSQL 18, ",
    "mariadb": "MariaDB, ",
    "mysql": "MySQL, ",
    "sqlite": "SQLite, ",
}


def report(document: dict[str, Any]) -> str:
    named = ", ".join(f"{name} {value}" for name, value in document["versions"].items())
    about = (
        "Counters on a private Redis over loopback TCP, server and clients on one machine with "
        f"{document['cpus']} CPUs, closed loop: adds acknowledged a second. "
        f"{document['rounds']} rounds of {document['seconds']:g} s in changing order: median "
        f"(min .. max); ratios are taken within rounds. Versions: {named}."
    )
    missing = "".join(f"\n{line}" for line in document["left_out"])
    return (
        f"{textwrap.fill(about, 100)}\n\n{text_table(document['cases'])}\n\n"
        f"Every acknowledged add was in the server, after every load of every contender.{missing}"
    )
