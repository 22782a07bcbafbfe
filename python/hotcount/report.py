"""Results of hotcount-load in Python: rows for a DataFrame, plotly's charts, one HTML file.

A folder is what ``hotcount-load run``, ``compare``, ``search``, ``sweep`` or ``scale`` kept with
``--out``. The extra
``hotcount[report]`` brings plotly and hdrhistogram, which this needs.

>>> from hotcount import report  # doctest: +SKIP
>>> result = report.read("compared")  # doctest: +SKIP
>>> pandas.DataFrame(result.rows())  # doctest: +SKIP
>>> result.charts()[0].figure.show()  # doctest: +SKIP
"""

from __future__ import annotations

import csv
import importlib.util
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hotcount

SCHEMA = "hotcount-load/1"
STUDIES = ("search", "sweep", "scale")
FILES = ("compare.json", "run.json", *(f"{study}.json" for study in STUDIES))
# Of the answers that did what they were asked for; the log has others under `failed`, `unknown`.
SUCCESSES = ("vote", "unvote", "read")
SHARES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999)


@dataclass(frozen=True)
class Fault:
    """What was done to a server, in seconds after the warm-up."""

    name: str
    from_s: float
    until_s: float


@dataclass(frozen=True)
class Row:
    """One strategy, over one run or the rounds of a comparison. Times in milliseconds."""

    strategy: str
    place: str
    acknowledged: str
    may_lose: str
    # The median of the rounds between the ends of its 95 % interval, or of a run thrice the figure.
    writes_per_s: tuple[float, float, float]
    ratio: tuple[float, float, float] | None
    # Whether the ratio differs from 1 by more than noise; None: nobody asked, as of a baseline.
    difference: bool | None
    p50_ms: float
    p99_ms: float
    failed: int
    unknown: int
    unserved: int
    audit: str
    reads: str
    reasons: tuple[str, ...]
    percentiles: tuple[tuple[float, float], ...]
    cpu_us: float | None  # Of the generator with the library in it, for each call.
    transactions_per_write: float | None  # None: none were counted.
    # Of 100 reads, 99 had a number that was right so many ms before they were sent, or later; and
    # how many reads were stale by at most so many ms. None, empty: no reads were checked.
    stale_p99_ms: float | None
    staleness: tuple[tuple[float, int], ...]
    reference: bool = False  # The baseline once more: the control, or with other callers.


@dataclass(frozen=True)
class Part:
    """Strategies under the same load: a run has one, a comparison one for each kind of load."""

    title: str
    load: str
    baseline: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Chart:
    """A picture, what it shows in words, and its numbers for who cannot see it."""

    title: str
    said: str
    figure: Any  # plotly.graph_objects.Figure
    head: tuple[str, ...]
    numbers: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Measured:
    """What one folder holds; of a comparison each part has its own load."""

    folder: Path
    kind: str
    command: str
    started: str
    machine: str
    versions: str
    conclusion: str
    notes: tuple[str, ...]
    parts: tuple[Part, ...]
    series: dict[str, list[float]] = field(default_factory=dict)
    warmup_s: float = 0.0
    faults: tuple[Fault, ...] = ()
    study: tuple[dict[str, Any], ...] = ()  # Of search, sweep and scale: each strategy's, as JSON.

    def rows(self) -> list[dict[str, Any]]:
        """For ``pandas.DataFrame(measured.rows())``: a dict for each strategy of each part.

        Of search and sweep one for each trial, of scale one for each number of callers.
        """
        if self.kind in STUDIES:
            from hotcount import _report_studies

            return _report_studies.rows_of(self)
        return [
            {
                "part": part.title,
                "strategy": row.strategy,
                "reference": row.reference,
                "audit": row.audit,
                "writes_per_s": row.writes_per_s[1],
                "ratio": row.ratio[1] if row.ratio else None,
                "difference": row.difference,
                "p50_ms": row.p50_ms,
                "p99_ms": row.p99_ms,
                "stale_p99_ms": row.stale_p99_ms,
                "transactions_per_write": row.transactions_per_write,
                "cpu_us": row.cpu_us,
                "without_an_answer": row.failed + row.unknown + row.unserved,
            }
            for part in self.parts
            for row in part.rows
        ]

    def charts(self) -> list[Chart]:
        """The charts of the page, in its order."""
        from hotcount import _report_charts, _report_studies

        if self.kind in STUDIES:
            return _report_studies.charts_of(self)
        return [
            chart for part in self.parts for chart in _report_charts.of_part(part)
        ] + _report_charts.of_time(self)


def check() -> None:
    """ConfigError names what this needs and does not find; `read` asks it too."""
    for needed in ("plotly", "hdrh"):
        if importlib.util.find_spec(needed) is None:
            raise hotcount.ConfigError(f"a report needs {needed}: pip install 'hotcount[report]'")


def _document(folder: Path) -> dict[str, Any]:
    for name in FILES:
        file = folder / name
        if not file.exists():
            continue
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise hotcount.ConfigError(f"{file} cannot be read: {error}") from None
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise hotcount.ConfigError(f"{file} is no result of this hotcount-load ({SCHEMA})")
        return document
    raise hotcount.ConfigError(f"{folder} has none of {', '.join(FILES)}")


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9.]+)(ns|us|ms|s|m|h)", text)
    if found is None:
        raise ValueError(f"{text!r} is no time")
    per_unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
    return float(found[1]) * per_unit[found[2]]


def _faults(text: str) -> tuple[Fault, ...]:
    """As --fault writes them: 2s:redis.kill9+1s,6s:redis.pause+500ms."""
    found = []
    for each in filter(None, text.split(",")):
        start, _, rest = each.partition(":")
        name, _, length = rest.partition("+")
        begins = _seconds(start)
        found.append(Fault(name, begins, begins + (_seconds(length) if length else 0.0)))
    return tuple(found)


def _series(folder: Path) -> dict[str, list[float]]:
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


def _of_run(folder: Path, document: dict[str, Any]) -> tuple[Part, ...]:
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
    )
    return (Part("Run", _load(settings), "", (row,)),)


def _of_comparison(folder: Path, document: dict[str, Any]) -> tuple[Part, ...]:
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
                    reference=found.get("role", "strategy") in ("control", "best"),
                )
            )
        load = _load(part["settings"])
        parts.append(Part(part["name"], load, part["baseline"], tuple(rows)))
    return tuple(parts)


def read(folder: str | Path) -> Measured:
    """What the folder of a run, comparison, search, sweep or scale holds.

    ConfigError names a folder that holds none of them.
    """
    folder = Path(folder)
    check()
    document = _document(folder)
    try:
        is_run = document["kind"] == "run"
        is_study = document["kind"] in STUDIES
        parts = (
            _of_run(folder, document)
            if is_run
            else ()
            if is_study
            else _of_comparison(folder, document)
        )
        settings = document["settings"] if is_run else {}
        machine = document["machine"]
        state = document.get("state", "finished")
        notes = list(document.get("notes", []))
        if state == "running":
            notes.append("The run was killed, or goes on: it has no figures. `audit` checks it.")
        measured = Measured(
            folder=folder,
            kind=document["kind"],
            command=" ".join(document["command"]),
            started=document["started"],
            machine=f"{machine['cpus']} x {machine['cpu_model']}, {machine['kernel']}, "
            f"{machine['memory_bytes'] / 2**30:.0f} GiB",
            versions=", ".join(f"{name} {v}" for name, v in document["versions"].items()),
            conclusion=document.get("conclusion", "inconclusive"),
            notes=tuple(notes),
            parts=parts,
            series=_series(folder) if is_run else {},
            warmup_s=settings.get("warmup_s", 0.0),
            faults=_faults(settings.get("faults", "")),
            study=tuple(document["strategies"]) if is_study else (),
        )
        measured.rows()  # Says here what a result lacks.
        return measured
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise hotcount.ConfigError(f"{folder}: its result lacks something: {error!r}") from None


def html(measured: Sequence[Measured]) -> str:
    """One page with the charts and tables of all; it asks nobody for anything."""
    from hotcount import _report_page

    return _report_page.html(measured)
