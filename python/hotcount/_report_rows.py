"""From the folders of hotcount-load to the rows of hotcount.report."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

from hotcount.report import Part, Recovery, Row

# Of the answers that did what they were asked for; the log has others under `failed`, `unknown`.
SUCCESSES = ("vote", "unvote", "read")
SHARES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999)


def series_of(folder: Path) -> dict[str, list[float]]:
    file = folder / "series.csv"
    if not file.exists():
        return {}
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return {name: [float(row[name]) for row in rows] for name in (rows[0] if rows else {})}


def _percentiles(
    folders: list[Path], warmup_s: float, unserved: int, summary: dict[str, Any]
) -> tuple[tuple[float, float], ...]:
    """(share, ms) of all calls after the warm-up; from the few in the JSON where there is no log. A
    share that holds a call that failed has no time: such a call is slower than any other.
    """
    from hdrh.histogram import HdrHistogram
    from hdrh.log import HistogramLogReader

    total = HdrHistogram(1, (1 << 42) - 1, 3)
    failed = unserved
    for folder in folders:
        file = folder / "response.hlog"
        if not file.exists():
            continue
        reader = HistogramLogReader(str(file), HdrHistogram(1, (1 << 42) - 1, 3))
        # Of a range of times in the run.
        while (interval := reader.get_next_interval_histogram(warmup_s)) is not None:
            if interval.get_tag() in SUCCESSES:
                total.add(interval)
            else:
                failed += interval.get_total_count()
        reader.close()
    count = total.get_total_count()
    if count == 0:
        names = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
        return tuple((share, summary[name] / 1000) for name, share in names.items())
    calls = count + failed
    # A share that fewer than one call lies above would repeat the largest one.
    shares = [share for share in SHARES if (1 - share) * calls >= 1 and share * calls <= count]
    return tuple(
        (share, total.get_value_at_percentile(100 * share * calls / count) / 1e6)
        for share in shares
    )


def _latency(figures: dict[str, Any]) -> dict[str, Any]:
    """From the intended time where there was one, as the tables of hotcount-load show it."""
    response: dict[str, Any] = figures.get("response_us", {"count": 0})
    service: dict[str, Any] = figures["service_us"]
    return response if response["count"] else service


def _audit_word(audit: dict[str, Any] | None, conclusion: str) -> str:
    if audit is None:
        return "not audited"
    if not audit["passed"]:
        return "FAILED"
    return "passed" if conclusion != "inconclusive" else "passed, but inconclusive"


def _reads(audit: dict[str, Any] | None) -> str:
    """How stale the reads were. Empty: nobody read a count, or nobody checked it."""
    reads = (audit or {}).get("reads", {})
    if not reads.get("checked"):
        return ""
    if reads["stale"] + reads["never_right"] == 0:
        return "exact"
    stale = reads["staleness_ms"]
    said = f"{100 * reads['stale'] / reads['checked']:.3g} %, p99 {stale['p99']:.3g} ms"
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


def _interval(spread: dict[str, Any]) -> tuple[float, float, float]:
    # One round has no interval.
    least, most = spread["interval"] or (spread["min"], spread["max"])
    return least, spread["median"], most


def _inverse(number: float | None) -> float | None:
    return 1 / number if number else None


def _load(settings: dict[str, Any]) -> str:
    rate = settings["rate_per_s"]
    loop = (
        f"closed loop, {settings['workers']:,} callers"
        if rate is None
        else f"open loop, {rate:,.0f} operations/s, {settings['workers']:,} workers"
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
    """Of a part: "Votes on PostgreSQL, closed loop"."""
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
        percentiles=_percentiles([folder], settings["warmup_s"], unserved, latency),
        cpu_us=1e6 * figures["cpu_s"] / answered if answered else None,
        transactions_per_write=figures["transactions"] / written if written else None,
        **_staleness(document.get("audit")),
        **_server(figures),
        promise=_promise(contract),
        recoveries=_recoveries(figures),
    )
    heading = _heading(settings, "")
    return (Part("Run", _load(settings), "", (row,), heading, settings["workload"]),)


def of_comparison(folder: Path, document: dict[str, Any]) -> tuple[Part, ...]:
    parts = []
    for part in document["parts"]:
        rows = []
        warmup_s = part["settings"]["warmup_s"]
        # The baseline's second run shows what noise is here.
        for found in [*part["strategies"], *part.get("references", [])]:
            name = found["strategy"]
            of_it = re.compile(rf"{part['name']}-\d+-{re.escape(name.replace('/', '-'))}")
            folders = sorted(each for each in folder.iterdir() if of_it.fullmatch(each.name))
            latency = _latency(found)
            writes, ratio = found["writes_per_s"], found["ratio_to_baseline"]
            contract = found.get("contract", {})
            trials = found["trials"]
            if not trials:
                continue  # It was interrupted before.
            audit = found["audit"] if all(trial["audit"] for trial in trials) else None
            rows.append(
                Row(
                    strategy=name,
                    place=found.get("place", ""),
                    acknowledged=contract.get("acknowledged", ""),
                    may_lose=contract.get("may_lose", ""),
                    writes_per_s=_interval(writes),
                    ratio=_interval(ratio),
                    difference=ratio["difference"],
                    p50_ms=latency["p50"] / 1000,
                    p99_ms=latency["p99"] / 1000,
                    failed=found["failed"],
                    unknown=found["unknown"],
                    unserved=found["censored"],
                    audit=_audit_word(audit, found["conclusion"]),
                    reads=_reads(audit),
                    reasons=tuple(found["reasons"]),
                    percentiles=_percentiles(folders, warmup_s, found["censored"], latency),
                    cpu_us=found["cpu_us_per_operation"],
                    transactions_per_write=_inverse(found["writes_per_transaction"]),
                    **_staleness(audit),
                    **_server(found),
                    promise=_promise(contract),
                    recoveries=tuple(
                        each for trial in trials for each in _recoveries(trial["result"])
                    ),
                    reference=found.get("role", "strategy") in ("control", "best"),
                )
            )
        settings, database = part["settings"], part.get("database") or ""
        parts.append(
            Part(
                title=part["name"],
                load=_load(settings),
                baseline=part["baseline"],
                rows=tuple(rows),
                heading=_heading(settings, database),
                workload=settings["workload"],
                database=database,
            )
        )
    return tuple(parts)
