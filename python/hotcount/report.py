"""Results of hotcount-load in Python: rows for a DataFrame, plotly's charts, one HTML file.

A folder is what ``hotcount-load run``, ``compare``, ``search``, ``sweep`` or ``scale`` kept with
``--out``. The extra ``hotcount[report]`` brings plotly and hdrhistogram, which this needs.

Example:
    >>> from hotcount import report  # doctest: +SKIP
    >>> result = report.read("compared")  # doctest: +SKIP
    >>> pandas.DataFrame(result.rows())  # doctest: +SKIP
    >>> result.charts()[0].figure.show()  # doctest: +SKIP
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class Fault:
    """A fault that was injected into a server, in seconds after the warm-up."""

    name: str
    from_s: float
    until_s: float


@dataclass(frozen=True)
class Recovery:
    """One fault as it went: seconds, of which `from_s` is from the start of the warm-up."""

    fault: str
    at_s: float
    from_s: float
    away_s: float
    before_per_s: float
    # After a server took the writes again: until a call succeeded, and until the rate was 90 % of
    # the one before. None: not in this load.
    first_ok_s: float | None
    recovered_s: float | None
    # Until another server took the writes. None: none did, or the run is older than this figure.
    replaced_s: float | None = None
    # Calls from the fault on, and acknowledged writes that it may have cost.
    failed: int = 0
    unknown: int = 0
    may_lose: int = 0


@dataclass(frozen=True)
class Row:
    """One strategy, over one run or the rounds of a comparison. Times in milliseconds."""

    strategy: str
    place: str
    acknowledged: str
    may_lose: str
    # The median of the rounds between the ends of its 95 % interval, or between least and most if
    # `interval` is False; of a run thrice the figure.
    writes_per_s: tuple[float, float, float]
    # To the baseline in the same rounds: of writes/s, in an open loop of p99. None: there is none.
    ratio: tuple[float, float, float] | None
    # Whether the ratio differs from 1 by more than noise; None: not tested, as for a baseline.
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
    cpu_us: float | None  # Processor time of the generator and the library for each call.
    transactions_per_write: float | None  # None: none were counted.
    # The p99 of the staleness of reads, and pairs (ms, reads that were stale by at most that
    # time). None, empty: no reads were checked.
    stale_p99_ms: float | None
    staleness: tuple[tuple[float, int], ...]
    reference: bool = False  # The baseline once more: the control, or with other callers.
    promise: str = (
        ""  # The promise of a read about earlier writes: "exact". Empty: reads return no count.
    )
    # The servers' cost of each acknowledged write; None: not known, for the reason in `not_known`.
    log_bytes: float | None = None
    commits: float | None = None
    server_ms: float | None = None  # Processor time, of private servers.
    not_known: tuple[str, ...] = ()
    recoveries: tuple[Recovery, ...] = ()  # Of all rounds.
    allowed: int = 0  # Findings of the audit that the contract allows.
    calls: int = 0  # That the percentiles are of.
    rounds: int = 1
    interval: bool = False  # There are enough rounds for intervals of 95 %.
    # For an open loop in a comparison: the share of the schedule that was sent in time, in the
    # worst round, and whether a round was overloaded. Percentiles and ratios then say nothing.
    offered: float | None = None
    overloaded: bool = False
    # The latency in ms that the percentiles have for calls that failed or had no answer. None:
    # there were no such calls.
    limit_ms: float | None = None
    p99_interval_ms: tuple[float, float] | None = None


@dataclass(frozen=True)
class Part:
    """Strategies under the same load: a run has one, a comparison one for each kind of load."""

    title: str
    load: str
    baseline: str
    rows: tuple[Row, ...]
    heading: str = ""  # For people: "Votes on PostgreSQL, closed loop".
    workload: str = ""
    database: str = ""  # The database of these strategies, if there are several.
    rate_per_s: float | None = None  # The rate of an open loop.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chart:
    """A chart, its description, and its numbers as a table for readers who cannot see it."""

    title: str
    said: str
    figure: Any  # plotly.graph_objects.Figure
    head: tuple[str, ...]
    numbers: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Measured:
    """The content of one folder; each part of a comparison has its own load."""

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
    slo: str = ""  # The SLO of a search.

    def rows(self) -> list[dict[str, Any]]:
        """For ``pandas.DataFrame(measured.rows())``: a dict for each strategy of each part.

        Of search and sweep one for each trial, of scale one for each number of callers.
        """
        if self.kind in STUDIES:
            from hotcount import _report_studies

            return _report_studies.rows_of(self)
        from hotcount import _report_charts

        return [
            {
                "part": part.title,
                "database": part.database,
                "strategy": row.strategy,
                "reference": row.reference,
                "audit": row.audit,
                "writes_per_s": row.writes_per_s[1],
                "ratio": row.ratio[1] if row.ratio else None,
                "ratio_of": "writes_per_s" if part.rate_per_s is None else "p99_ms",
                "difference": row.difference,
                "p50_ms": row.p50_ms,
                "p99_ms": row.p99_ms,
                "overloaded": row.overloaded,
                "reads_promised": row.promise,
                "stale_p99_ms": row.stale_p99_ms,
                "transactions_per_write": row.transactions_per_write,
                "cpu_us": row.cpu_us,
                "log_bytes_per_write": row.log_bytes,
                "commits_per_write": row.commits,
                "server_ms_per_write": row.server_ms,
                "recovered_s": _report_charts.slowest_recovery(row.recoveries),
                "without_an_answer": row.failed + row.unknown + row.unserved,
            }
            for part in self.parts
            for row in part.rows
        ]

    def charts(self) -> list[Chart]:
        """The charts of the page, in its order."""
        from hotcount import _report_charts, _report_studies, _report_time

        if self.kind in STUDIES:
            return _report_studies.charts_of(self)
        return [
            *_report_charts.of_databases(self.parts),
            *(chart for part in self.parts for chart in _report_charts.of_part(part)),
            *_report_time.of_time(self),
        ]


def check() -> None:
    """ConfigError that names the missing packages; `read` calls this too."""
    for needed in ("plotly", "hdrh", "scipy"):
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


def read(folder: str | Path) -> Measured:
    """Reads the folder of a run, comparison, search, sweep or scale.

    ConfigError names a folder that holds none of them.
    """
    from hotcount import _report_rows

    folder = Path(folder)
    check()
    document = _document(folder)
    try:
        is_run = document["kind"] == "run"
        is_study = document["kind"] in STUDIES
        parts = (
            _report_rows.of_run(folder, document)
            if is_run
            else ()
            if is_study
            else _report_rows.of_comparison(folder, document)
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
            series=_report_rows.series_of(folder) if is_run else {},
            warmup_s=settings.get("warmup_s", 0.0),
            faults=_faults(settings.get("faults", "")),
            study=tuple(document["strategies"]) if is_study else (),
            slo=str(document.get("slo", "")),
        )
        measured.rows()  # Says here what a result lacks.
        return measured
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise hotcount.ConfigError(f"{folder}: its result lacks something: {error!r}") from None


def html(measured: Sequence[Measured]) -> str:
    """One page with all charts and tables; it loads nothing from the network."""
    from hotcount import _report_page

    return _report_page.html(measured)
