"""`hotcount doctor`: which settings of servers make which feature unsafe, and what to set."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import hotcount
from hotcount import _doctor_cluster, _doctor_redis, _doctor_sentinel, _doctor_sql, _schema
from hotcount._doctor_finding import FEATURES, IN_REDIS, IN_SQL, Finding, is_remote
from hotcount.stores import kind_of_url

OK, UNSAFE, CANNOT_TELL = 0, 1, 3
# The server answers, but not this user.
REFUSED = (hotcount.AuthError, hotcount.PermissionDeniedError)

DESCRIPTION = (
    "Looks at the version, eviction, persistence, durability, replicas and connections of stores "
    "and databases, and names each unsafe setting, the features that it concerns and a safe value. "
    "On databases with tables of Votes it also tries a fold, rolls it back, and reports whether a "
    "process folds. Changes nothing."
)
EXIT_CODES = (
    "Exit codes: 0 no setting is unsafe, 1 a setting is unsafe, 2 bad usage, 3 no setting is known "
    "to be unsafe, but some could not be read (a server that does not answer)."
)


@dataclass(frozen=True)
class Report:
    """The findings for one URL."""

    target: str
    findings: list[Finding]


def without_login(url: str) -> str:
    """The URL without login and options, either of which may have a password."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.partition('?')[0].rpartition('@')[2]}"


def examine_memory(store: hotcount.Memory, url: str) -> list[Finding]:
    """The warning that a Memory store is private to its process."""
    return [
        Finding(
            "processes",
            "warning",
            "each process has a store of its own, a forked child too",
            tuple(FEATURES),
            "one process only: with 4 workers (gunicorn, uWSGI) each counts alone and a limit "
            "admits 4 times as much; use redis:// there",
        )
    ]


def examine(url: str, processes: int, names: dict[str, Any]) -> list[Finding]:
    """Checks the server of a URL; a server that does not answer is a finding too."""
    kind = kind_of_url(url)
    speaks_tls = url.startswith(("rediss", "valkeys"))
    found: list[Finding] = []
    try:
        if kind == "Database":
            return _doctor_sql.examine(url, processes, names)
        if _doctor_cluster.is_cluster(url):
            return _doctor_cluster.examine(url)
        with hotcount.connect_store(url) as store:
            if isinstance(store, hotcount.Memory):
                return examine_memory(store, url)
            if _doctor_sentinel.is_sentinel(url):
                found += _doctor_sentinel.examine(url)
            found += _doctor_redis.examine(store)
            if _doctor_sentinel.is_sentinel(url):
                found += _doctor_redis.acknowledged()
            if is_remote(url) and not speaks_tls:
                found.append(_doctor_redis.NO_TLS)
            return found
    except hotcount.ConfigError:
        raise
    except hotcount.HotcountError as error:
        concerned = IN_SQL if kind == "Database" else IN_REDIS
        if kind != "Database" and isinstance(error, REFUSED):
            return [*found, Finding("access", "unknown", str(error), concerned, _doctor_redis.USER)]
        advice = _doctor_redis.TLS if speaks_tls else ""
        return [*found, Finding("reachable", "unknown", str(error), concerned, advice)]


def exit_code(reports: list[Report]) -> int:
    """UNSAFE with any unsafe setting, even if other settings could not be read."""
    states = {each.state for report in reports for each in report.findings}
    if "unsafe" in states:
        return UNSAFE
    return CANNOT_TELL if "unknown" in states else OK


def show(reports: list[Report]) -> None:
    for report in reports:
        print(report.target)
        for each in report.findings:
            print(f"  {each.state:<8} {each.check:<15} {each.found}")
            if each.unsafe_for and each.state != "ok":
                print(f"           {'':<15} concerns: {', '.join(each.unsafe_for)}")
            if each.advice:
                print(f"           {'':<15} {each.advice}")


def run(options: argparse.Namespace) -> int:
    chosen = tuple(options.features or FEATURES)
    names = _schema.names_of(options)
    reports = []
    for url in options.urls:
        if kind_of_url(url) == "Database" and missing_file(url):
            findings = [Finding("reachable", "unknown", "there is no such file", chosen, "")]
        else:
            findings = examine(url, options.processes, names)
        kept = [each.only_for(chosen) for each in findings]
        reports.append(Report(without_login(url), [each for each in kept if each is not None]))
    code = exit_code(reports)
    if options.json:
        what = {"ok": code == OK, "features": chosen, "targets": [asdict(each) for each in reports]}
        print(json.dumps(what, indent=2))
    else:
        show(reports)
        words = {OK: "nothing unsafe was found", UNSAFE: "something is unsafe", CANNOT_TELL: ""}
        print(words[code] or "something could not be told", file=sys.stderr)
    return code


def missing_file(url: str) -> bool:
    """Whether opening the database would make it."""
    scheme, _, rest = url.partition(":///")
    path = unquote(rest.partition("?")[0])
    if not scheme.lower().startswith("sqlite") or path == ":memory:":
        return False
    return not Path(path).exists()


def add_arguments(
    parser: argparse.ArgumentParser, url: Callable[[str], str], count: Callable[[str], int]
) -> None:
    add: Any = parser.add_argument
    add("urls", nargs="+", type=url, metavar="URL", help="a store or a database")
    add(
        "--for",
        dest="features",
        action="append",
        choices=list(FEATURES),
        help="judge by what this needs; may be repeated (default: all)",
    )
    add("--processes", type=count, default=1, help="that will use a database (default: 1)")
    _schema.add_names(parser)
    add("--json", action="store_true", help="the result as JSON")
