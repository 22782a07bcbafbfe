"""From the folders of hotcount-load to the rows of hotcount.report."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any

from hotcount._report_numbers import OWN_SHARES, can_tell, number, whole
from hotcount.report import Part, Recovery, Row

LEAST_ROUNDS = 6  # The fewest for which there are intervals.
# Kinds of successful calls; the log has other calls under `failed` and `unknown`.
SUCCESSES = ("vote", "unvote", "read")
SHARES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999)


def series_of(folder: Path) -> dict[str, list[float]]:
    file = folder / "series.csv"
    if not file.exists():
        return {}
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return {name: [float(row[name]) for row in rows] for name in (rows[0] if rows else {})}


def _logged(folders: list[Path], settings: dict[str, Any]) -> tuple[Any, int]:
    """Latencies of the calls that did what they were asked for, and how many others there were: of
    the intervals in the logs from the end of the warm-up on."""
    from hdrh.histogram import HdrHistogram
    from hdrh.log import HistogramLogReader

    total = HdrHistogram(1, (1 << 42) - 1, 3)
    failed = 0
    # Times in the log have whole milliseconds.
    first = settings["warmup_s"] - 0.001
    for folder in folders:
        file = folder / "response.hlog"
        if not file.exists():
            continue
        reader = HistogramLogReader(str(file), HdrHistogram(1, (1 << 42) - 1, 3))
        while (interval := reader.get_next_interval_histogram(first, math.inf)) is not None:
            if interval.get_tag() in SUCCESSES:
                total.add(interval)
            else:
                failed += interval.get_total_count()
        reader.close()
    return total, failed


def _percentiles(
    folders: list[Path],
    settings: dict[str, Any],
    unserved: int,
    summary: dict[str, Any],
    limit_ms: float | None,
) -> tuple[tuple[float, float], ...]:
    """(share, ms) of all calls of the window. A share that holds a call that failed has no time:
    such a call is slower than any other.

    The four shares of the JSON are what the tables show. Those between them are of the log, which
    files a call under the second in which it ended: so it may have calls from outside the window.
    """  # fmt: skip
    if summary["count"] == 0:
        return ()
    limit = math.inf if limit_ms is None else limit_ms
    own = {share: summary[name] / 1000 for name, share in OWN_SHARES.items()}
    found = {
        share: ms for share, ms in own.items() if ms < limit and can_tell(summary["count"], share)
    }
    total, failed = _logged(folders, settings)
    count = total.get_total_count()
    calls = count + failed + unserved
    strangers = abs(calls - summary["count"])
    for share in SHARES if count else ():
        above = (1 - share) * calls
        # A share that fewer than one call lies above would repeat the largest one; one that few lie
        # above says more of the strangers than of the window.
        if share in own or above < max(1, 10 * strangers) or share * calls > count:
            continue
        ms = total.get_value_at_percentile(100 * share * calls / count) / 1e6
        before = max((own[each] for each in own if each < share), default=0.0)
        after = min((own[each] for each in own if each > share), default=math.inf)
        if before <= ms <= after:
            found[share] = ms
    return tuple(sorted(found.items()))


def _latency(figures: dict[str, Any]) -> dict[str, Any]:
    """From the intended time where there was one, as the tables of hotcount-load show it."""
    response: dict[str, Any] = figures.get("response_us", {"count": 0})
    service: dict[str, Any] = figures["service_us"]
    return response if response["count"] else service


def _audit_word(audit: dict[str, Any] | None, conclusion: str) -> str:
    if audit is None:
        return "not audited"
    if not audit["passed"]:
        return "broken"
    word = "allowed" if audit.get("declared") else "passed"
    return word if conclusion != "inconclusive" else f"{word}, but inconclusive"


def _allowed(audit: dict[str, Any] | None) -> int:
    """As Row has it."""
    return int((audit or {}).get("declared", 0))


def kept(allowed: dict[str, int]) -> str:
    """The result of an audit without a broken promise: the findings that contracts allow."""
    names = [name for name, findings in allowed.items() if findings]
    if not names:
        return "The audit found every promise kept: nothing acknowledged was lost or doubled"
    return (
        f"The audit found no promise broken. {', '.join(names)} broke rules "
        f"{whole(sum(allowed.values()))} times, as their contracts allow"
    )


def _reads(audit: dict[str, Any] | None) -> str:
    """The staleness of the reads. Empty: no count was read, or none was checked."""
    reads = (audit or {}).get("reads", {})
    if not reads.get("checked"):
        return ""
    if reads["stale"] + reads["never_right"] == 0:
        return "exact"
    stale = reads["staleness_ms"]
    age = (
        f"p99 {number(stale['p99'])} ms"
        if can_tell(reads["checked"], 0.99)
        else f"at most {number(stale['max'])} ms"
    )
    said = f"{100 * reads['stale'] / reads['checked']:.3g} %, {age}"
    never = reads["never_right"]
    return f"{said}; {never:,} never right" if never else said


def _staleness(audit: dict[str, Any] | None) -> dict[str, Any]:
    """As Row has it."""
    reads = (audit or {}).get("reads", {})
    if not reads.get("checked"):
        return {"stale_p99_ms": None, "staleness": ()}
    found = reads["staleness_ms"]
    return {
        "stale_p99_ms": found["p99"],
        "staleness": tuple((ms, count) for ms, count in found["up_to"]),
    }


def _interval(spread: dict[str, Any], has_intervals: bool) -> tuple[float, float, float]:
    """The median between its ends, as Row has them."""
    median = spread["median"]
    none = (median, median) if has_intervals else (spread["min"], spread["max"])
    least, most = spread.get("interval") or none
    return least, median, most


def _ratio(found: dict[str, Any], is_open: bool) -> tuple[float, float, float] | None:
    rounds = len(found["trials"])
    ratio = found["p99_ratio_to_baseline" if is_open else "ratio_to_baseline"]
    # All 0: the baseline did not come to run. One round's p99 is no figure to compare with.
    if ratio["max"] == 0 or (is_open and (rounds < 2 or found["overloaded"])):
        return None
    return _interval(ratio, rounds >= LEAST_ROUNDS)


def _limit(settings: dict[str, Any], without_an_answer: int) -> float | None:
    """As Row has it."""
    return 1000 * float(settings["timeout_s"]) if without_an_answer else None


def _p99_interval(latency: dict[str, Any]) -> tuple[float, float] | None:
    """The interval of the median of the rounds' p99, widened to hold the p99 of all their calls; in
    results from before `hotcount load`, the interval of that p99."""
    ends = latency.get("p99_by_round", {}).get("interval") or latency.get("p99_interval")
    if not ends:
        return None
    return min(ends[0], latency["p99"]) / 1000, max(ends[1], latency["p99"]) / 1000


def _inverse(number: float | None) -> float | None:
    return 1 / number if number else None


def load_of(settings: dict[str, Any], loop: str = "") -> str:
    """In words; `loop` says it of several loads."""
    rate = settings["rate_per_s"]
    loop = loop or (
        f"closed loop, {settings['workers']:,} callers"
        if rate is None
        else f"open loop, {number(rate)} operations/s, {settings['workers']:,} workers"
    )
    mix = ", ".join(f"{name} {share:g}" for name, share in settings["mix"].items())
    return (
        f"{settings['workload']}: {loop}, {settings['duration_s']:g} s after "
        f"{settings['warmup_s']:g} s of warm-up; {settings['items']:,} items, Zipf "
        f"{settings['zipf']:g}, {settings['users']:,} users, {mix}, seed {settings['seed']}"
    )


def _promise(contract: dict[str, Any]) -> str:
    promise = str(contract.get("reads", ""))
    return "" if promise == "no count" else promise


def _server(figures: dict[str, Any]) -> dict[str, Any]:
    """As Row has it."""
    server = figures.get("server", {})
    return {
        "log_bytes": server.get("log_bytes_per_write"),
        "commits": server.get("commits_per_write"),
        "server_ms": server.get("cpu_ms_per_write"),
        "not_known": tuple(server.get("unknown", ())),
    }


def _recoveries(figures: dict[str, Any]) -> tuple[Recovery, ...]:
    return tuple(Recovery(**each) for each in figures.get("recoveries", ()))


WORKLOADS = {"votes": "Votes", "counters": "Counters", "limiter": "Limiters", "zset": "Sorted sets"}


NAMES = {"postgres": "PostgreSQL", "mariadb": "MariaDB", "mysql": "MySQL", "sqlite": "SQLite"}


def _heading(settings: dict[str, Any], database: str) -> str:
    """The heading of a part: "Votes on PostgreSQL, closed loop"."""
    what = WORKLOADS.get(settings["workload"], settings["workload"])
    kind, dash, other = database.partition("-")
    if database:
        what += f" on {NAMES.get(kind, kind)}{dash and ' '}{other}"
    return f"{what}, {'closed' if settings['rate_per_s'] is None else 'open'} loop"


def of_run(folder: Path, document: dict[str, Any]) -> tuple[Part, ...]:
    settings, contract = document["settings"], document["contract"]
    figures = document.get("result")
    if figures is None:
        return ()
    latency = _latency(figures)
    done = figures["operations"]
    unserved = figures["offered"]["censored"] if "offered" in figures else 0
    window = figures["window_s"]
    written = done["votes_ok"] + done["unvotes_ok"]
    answered = written + done["reads_ok"]
    rate = written / window if window else 0.0
    limit_ms = _limit(settings, done["failed"] + done["unknown"] + unserved)
    row = Row(
        strategy=settings["strategy"],
        place=document["place"],
        acknowledged=contract["acknowledged"],
        may_lose=contract["may_lose"],
        writes_per_s=(rate, rate, rate),
        ratio=None,
        difference=None,
        p50_ms=latency["p50"] / 1000,
        p99_ms=latency["p99"] / 1000,
        failed=done["failed"],
        unknown=done["unknown"],
        unserved=unserved,
        audit=_audit_word(document.get("audit"), document["conclusion"]),
        reads=_reads(document.get("audit")),
        reasons=tuple(document["reasons"]),
        percentiles=_percentiles([folder], settings, unserved, latency, limit_ms),
        cpu_us=1e6 * figures["cpu_s"] / answered if answered else None,
        transactions_per_write=figures["transactions"] / written if written else None,
        **_staleness(document.get("audit")),
        **_server(figures),
        promise=_promise(contract),
        recoveries=_recoveries(figures),
        allowed=_allowed(document.get("audit")),
        calls=latency["count"],
        limit_ms=limit_ms,
    )
    return (
        Part(
            title="Run",
            load=load_of(settings),
            baseline="",
            rows=(row,),
            heading=_heading(settings, ""),
            workload=settings["workload"],
            rate_per_s=settings["rate_per_s"],
        ),
    )


def folders_of(folder: Path, part: str, strategy: str) -> list[Path]:
    """The kept rounds of a strategy in a comparison."""
    # The folder name that hotcount-load makes of a strategy's name.
    plain = re.sub(r"[^A-Za-z0-9_.=-]", "-", strategy)
    of_it = re.compile(rf"{re.escape(part)}-\d+-{re.escape(plain)}")
    return sorted(each for each in folder.iterdir() if of_it.fullmatch(each.name))


def _compared(folder: Path, part: dict[str, Any], found: dict[str, Any]) -> Row:
    """One strategy of a part, over its rounds."""
    settings, name, trials = part["settings"], found["strategy"], found["trials"]
    is_open = settings["rate_per_s"] is not None
    folders = folders_of(folder, part["name"], name)
    latency = _latency(found)
    contract = found.get("contract", {})
    audit = found["audit"] if all(trial["audit"] for trial in trials) else None
    failed, unknown, unserved = found["failed"], found["unknown"], found["censored"]
    limit_ms = _limit(settings, failed + unknown + unserved)
    has_intervals = len(trials) >= LEAST_ROUNDS
    return Row(
        strategy=name,
        place=found.get("place", ""),
        acknowledged=contract.get("acknowledged", ""),
        may_lose=contract.get("may_lose", ""),
        writes_per_s=_interval(found["writes_per_s"], has_intervals),
        ratio=_ratio(found, is_open),
        difference=found["p99_ratio_to_baseline" if is_open else "ratio_to_baseline"]["difference"],
        p50_ms=latency["p50"] / 1000,
        p99_ms=latency["p99"] / 1000,
        failed=failed,
        unknown=unknown,
        unserved=unserved,
        audit=_audit_word(audit, found["conclusion"]),
        reads=_reads(audit),
        reasons=tuple(found["reasons"]),
        percentiles=_percentiles(folders, settings, unserved, latency, limit_ms),
        cpu_us=found["cpu_us_per_operation"],
        transactions_per_write=_inverse(found["writes_per_transaction"]),
        **_staleness(audit),
        **_server(found),
        promise=_promise(contract),
        recoveries=tuple(each for trial in trials for each in _recoveries(trial["result"])),
        reference=found.get("role", "strategy") in ("control", "best"),
        allowed=_allowed(audit),
        calls=latency["count"],
        rounds=len(trials),
        interval=has_intervals,
        offered=found["offered_share"] if is_open else None,
        overloaded=is_open and found["overloaded"],
        limit_ms=limit_ms,
        p99_interval_ms=_p99_interval(latency),
    )


def of_comparison(folder: Path, document: dict[str, Any]) -> tuple[Part, ...]:
    from hotcount._load_compare import with_statistics

    parts = []
    for part in with_statistics(document)["parts"]:
        settings, database = part["settings"], part.get("database") or ""
        # The baseline's second run shows the noise of the machine.
        all_of_it = [*part["strategies"], *part.get("references", [])]
        parts.append(
            Part(
                title=part["name"],
                load=load_of(settings),
                baseline=part["baseline"],
                # Without trials: it was interrupted before.
                rows=tuple(_compared(folder, part, each) for each in all_of_it if each["trials"]),
                heading=_heading(settings, database),
                workload=settings["workload"],
                database=database,
                rate_per_s=settings["rate_per_s"],
                notes=tuple(part.get("notes", ())),
            )
        )
    return tuple(parts)
