"""Figures and ratios as one document, and as text."""

from __future__ import annotations

import statistics
import textwrap
from typing import Any

from loadtest.peers.rounds import OURS, RATE, Case

HEADINGS = {
    "sync": "Blocking calls from Python threads",
    "asyncio": "Awaited calls from asyncio tasks, 1,000 keys",
    "cluster": "Adds on a cluster from Python, 1,000 keys",
    "limits": "Awaited limits and sorted sets from asyncio tasks: calls/s",
    "limiters": "Limits: hits/s, and the server's time for a key in microseconds",
    "batch": "Batches of 1,000 adds from one Python thread",
    "sets": "Sorted sets from Python: upserts/s, and another client's wait in microseconds",
    "calls": "Calls in Python where nothing waits",
    "scripts": "Limits, op_ids and sets from Python",
    "cpp": "From C++; Go's clients with as many goroutines",
    "postgres": "Votes on PostgreSQL, one item unless said",
    "mariadb": "Votes on MariaDB, one item unless said",
    "mysql": "Votes on MySQL, one item unless said",
    "sqlite": "Votes on SQLite, one item unless said",
}


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def comparisons(case: Case) -> list[dict[str, Any]]:
    """Hotcount's figure divided by each peer's, by metric: a ratio for each round, then the median.

    A disturbance of the machine within a round slows both.
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
            made.append({"peer": peer, "metric": metric, "ratio": ratio})
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
    """A rate or a latency: four significant digits below 1,000, a whole number from 1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def decimal(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def ranged(of: dict[str, float], show: Any) -> str:
    return f"{show(of['median'])} ({show(of['min'])} .. {show(of['max'])})"


def rows(one: dict[str, Any]) -> list[tuple[str, ...]]:
    """case, peer, ours, theirs, ratio: a row for each peer and metric."""
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
                made.append((name, "-", our, "-", "-"))
                continue
            ratio = ratios.get((peer, metric))
            shown = "-" if ratio is None else ranged(ratio["ratio"], decimal)
            made.append((name, peer, our, ranged(theirs, number), shown))
    return made


HEAD = ("case", "peer", "hotcount", "peer's", "ratio")


def text_table(summaries: list[dict[str, Any]]) -> str:
    """Aligned columns, a heading for each group; a repeated case name or figure is left blank."""
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
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    ]
    return "\n".join(shown).strip("\n")


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
