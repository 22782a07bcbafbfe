"""`hotcount load search`: the highest rate of an open loop that meets an SLO, for each strategy."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from hotcount._load_slo import RateSearch, time_text, too_short, trial_length, why_not
from hotcount._load_studies import (
    BROKEN,
    INCONCLUSIVE,
    PASSED,
    SHARES,
    Document,
    Runs,
    document_of,
    headroom_of,
    machine_of,
    now,
    percentile_ms,
    worst,
)
from hotcount._load_trials import Failed
from hotcount._report_numbers import number, table


def _seconds(seconds: float) -> str:
    return f"{round(seconds * 1e9)}ns"


def confirming_seed(seed: int, confirmation: int) -> int:
    """The seed for the traffic of confirming trial 1, 2, ...: the traffic of each trial differs. At
    most 53 bits, so that a double holds it."""
    return int(np.random.SeedSequence([seed, confirmation]).generate_state(1, np.uint64)[0]) >> 11


def _why_over(trial: Document) -> str | None:
    """The reason why the search ends after this trial; None: it continues."""
    if trial["conclusion"] == BROKEN:
        return str(trial["reasons"][0])
    if trial["result"]["interrupted"]:
        return "it was interrupted"
    if trial["audit"] is None:
        return str((trial["reasons"] or ["not audited"])[0])
    return None


def _first_rate(runs: Runs, settings: Document, found: Document) -> float:
    """The first rate to try: a quarter of the throughput of a short closed loop, at least 10/s."""
    trial = runs.run(
        f"search-{settings['strategy']}-00", "-s", settings["strategy"], "--arrival", "closed",
        "-d", _seconds(min(settings["duration_s"], 0.5)),
        "--warmup", _seconds(min(settings["warmup_s"], 0.25)),
    )  # fmt: skip
    if trial["conclusion"] == BROKEN:
        found["conclusion"], found["reasons"] = BROKEN, trial["reasons"]
    return max(10.0, float(trial["result"]["ok_per_s"]) / 4)


def _limit(found: Document) -> str:
    """The SLO terms that the last trial at the lowest refused rate missed."""
    for trial in reversed(found["trials"]):
        if trial["misses"] and trial["rate_per_s"] == found["refused_per_s"]:
            return "; ".join(trial["misses"])
    return "-"


def _search_one(
    runs: Runs, settings: Document, slo: str, first: float, max_time_s: float,
    arrival: str, clock: Callable[[], float],
) -> Document:  # fmt: skip
    strategy, seed, asked_s = settings["strategy"], settings["seed"], settings["duration_s"]
    found: Document = {
        "strategy": strategy, "rate_per_s": 0.0, "refused_per_s": None, "limit": "-",
        "elapsed_s": 0.0, "conclusion": INCONCLUSIVE, "reasons": [], "trials": [],
    }  # fmt: skip
    start = clock()
    search = None
    try:
        search = RateSearch(first or _first_rate(runs, settings, found))
        longest_s = 0.0
        confirmations = 0
        ended = found["conclusion"] == BROKEN
        while not ended and (rate := search.next()) is not None:
            before_s = clock() - start
            if longest_s and before_s + longest_s > max_time_s:
                found["reasons"].append(
                    f"--max-time {time_text(max_time_s)} ended the search before a rate was "
                    f"confirmed; "
                    f"{search.held_words()}"
                )
                break
            length_s = trial_length(slo, settings["mix"], asked_s, rate)
            options = ["-s", strategy, "-r", repr(rate), "--arrival", arrival]
            options += ["-d", _seconds(length_s)]
            if search.phase == "confirm":
                confirmations += 1
                options += ["--seed", str(confirming_seed(seed, confirmations))]
            trial = runs.run(f"search-{strategy}-{len(found['trials']) + 1:02}", *options)
            over = _why_over(trial)
            if over:
                found["reasons"].append(over)
                ended = True
            if trial["conclusion"] == BROKEN:
                found["conclusion"] = BROKEN
            misses = why_not(trial)
            needed = too_short(asked_s, trial)
            if not ended and needed and len(needed) == len(misses):
                found["reasons"] += [f"{why}: raise -d or --from" for why in needed]
                ended = True
            else:
                search.note(not misses and not ended)
            found["trials"].append(
                {**trial, "rate_per_s": rate, "held": not misses, "misses": misses}
            )
            longest_s = max(longest_s, clock() - start - before_s)
    except Failed as error:
        found["reasons"].append(f"it could not be measured: {error}")
    if search:
        found["rate_per_s"] = search.confirmed
        found["refused_per_s"] = search.refused or None
    found["elapsed_s"] = clock() - start
    found["limit"] = _limit(found)
    if found["rate_per_s"] > 0:
        found["conclusion"] = PASSED
    elif not found["reasons"]:
        found["reasons"].append(f"no rate held: {found['limit']}")
    return found


def search(
    runs: Runs, slo: str, first: float = 0.0, max_time_s: float = 180.0,
    arrival: str = "poisson", clock: Callable[[], float] = time.monotonic,
) -> Document:  # fmt: skip
    """The highest rate of an open loop that meets an SLO, strategy by strategy. A broken contract
    ends the search for its strategy. The SLO is the --threshold of `runs`."""
    started = now()
    results: list[Document] = []
    for settings in runs.settings:
        if runs.interrupted:
            results.append(
                {
                    "strategy": settings["strategy"], "rate_per_s": 0.0, "refused_per_s": None,
                    "limit": "-", "elapsed_s": 0.0, "conclusion": INCONCLUSIVE,
                    "reasons": ["not run: interrupted before"], "trials": [],
                }
            )  # fmt: skip
            continue
        results.append(_search_one(runs, settings, slo, first, max_time_s, arrival, clock))
    conclusion = worst([found["conclusion"] for found in results])
    if runs.interrupted and conclusion == PASSED:
        conclusion = INCONCLUSIVE
    return document_of("search", runs, started, conclusion, slo=slo, strategies=results)


def slowest(found: Document) -> Document | None:
    """The trial with the highest 99th percentile among those that held at the confirmed rate."""
    confirmed = [
        trial for trial in found["trials"]
        if trial["held"] and trial["rate_per_s"] == found["rate_per_s"]
    ]  # fmt: skip
    return max(confirmed, key=lambda trial: trial["result"]["response_us"]["p99"], default=None)


def _per_s(rate: float | None) -> str:
    return number(rate) if rate else "-"


def search_text(document: Document) -> str:
    head = ["strategy", "ops/s", "refused at", "writes/s", "p50 ms", "p99 ms", "p99.9 ms",
            "generator", "trials", "what the next rate misses"]  # fmt: skip
    rows = []
    notes = ""
    places = ""
    for found in document["strategies"]:
        at = slowest(found)
        rows.append(
            [
                found["strategy"], _per_s(found["rate_per_s"]), _per_s(found["refused_per_s"]),
                _per_s(at["result"]["writes_per_s"]) if at else "-",
                *(percentile_ms(at, name) for name in SHARES), headroom_of(at),
                str(len(found["trials"])), found["limit"],
            ]
        )  # fmt: skip
        for reason in found["reasons"]:
            notes += f"  {found['strategy']}: {found['conclusion']}: {reason}\n"
        if at:
            places += (
                f"  {found['strategy']} on {at['place']}: when answered, "
                f"{at['contract']['acknowledged']}\n"
            )
    text = (
        f"The highest rate under {document['slo']}, on {machine_of(document)}\n\n"
        f"{table(head, rows)}\n{notes}"
    )
    if not places:  # No strategy has a rate.
        return text
    return text + (
        "\nEach rate held in three more trials, each with other random traffic; "
        '"refused at" is the lowest higher rate, at which two trials failed.\n'
        'Percentiles are those of the slowest trial that held at the rate. "generator": the '
        f"generator's ceiling divided by the rate.\n\nWhat an acknowledgement means\n{places}"
    )


def search_markdown(document: Document) -> str:
    """A table in Markdown, with a row for each strategy."""
    head = ["strategy", f"operations/s with {document['slo']}", "refused at", "votes/s", "p50 ms",
            "p99 ms", "what the next rate misses"]  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for found in document["strategies"]:
        at, rate = slowest(found), found["rate_per_s"]
        cells = [
            found["strategy"],
            _per_s(rate) if rate else found["conclusion"],
            _per_s(found["refused_per_s"]),
            _per_s(at["result"]["writes_per_s"]) if at else "-",
            percentile_ms(at, "p50"),
            percentile_ms(at, "p99"),
            found["limit"] if rate else "; ".join(found["reasons"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
