"""`hotcount load search`, `sweep`, `scale`, `calibrate`, `compare` and `diff`.

hotcount-load runs and audits; this module interprets the results.

A study passes all other options to `hotcount-load run`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hotcount import report
from hotcount._load_slo import (
    parse_callers,
    parse_rate,
    parse_rates,
    parse_slo,
    parse_time,
)
from hotcount._load_trials import Failed, Refused, interruptible, program, trials
from hotcount.errors import ConfigError

DONE, BAD_USAGE, INCONCLUSIVE = 0, 2, 3

Document = dict[str, Any]
Parse = Callable[[str], Any]

# Options that a study sets itself, or that have no meaning in one.
VARIED = ("-r", "--rate", "--threshold", "--trace", "--kill-every", "--stall", "--outage",
          "--fault", "--bystander", "--batch", "--each")  # fmt: skip
SLO = "p99<10ms,err<0.1%,lost=0"
OPEN_LOOP = ("-w", "64", "--warmup", "250ms", "-d", "2s", "--timeout", "1s")
CLOSED_LOOP = ("--warmup", "250ms", "-d", "1s", "--timeout", "5s")
IDLE = ("-s", "nothing", "-w", "32", "--warmup", "50ms", "-d", "300ms", "--progress", "none")


class Parser(argparse.ArgumentParser):
    """Raises ConfigError, whose text has the form of hotcount-load's errors."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def _value(parse: Parse) -> Parse:
    def read(text: str) -> Any:
        try:
            return parse(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise ConfigError(f"'{text}' is not from 1 to 1000")
    return int(text)


def parser(command: str) -> argparse.ArgumentParser:
    """Returns the parser of the command's own options; the others go to hotcount-load."""
    what = {
        "search": "The highest rate that meets an SLO, for each strategy: x1.5, then bisection to "
        "3 %, then three confirmations, all audited; at most --max-time for each strategy",
        "sweep": "Each strategy at each of several rates, open loop",
        "scale": "Throughput of a closed loop against the number of callers, and the law that it "
        "follows (USL)",
        "calibrate": "The ceiling of this machine and the generator; 5 to 15 s. Later runs report "
        "their distance to it (kept in ~/.cache/hotcount)",
        "compare": "hotcount-load compare, with intervals of 95 %% and tests of the differences",
        "diff": "The differences between two folders of run or compare, apart from noise",
    }[command]
    own = Parser(
        prog=f"hotcount load {command}",
        description=what,
        allow_abbrev=False,
        epilog=None
        if command in ("diff", "calibrate")
        else f"Other options: hotcount-load {'compare' if command == 'compare' else 'run'} --help.",
    )

    def add(*names: str, parse: Parse = str, metavar: str = "", **more: Any) -> None:
        own.add_argument(*names, type=_value(parse), metavar=metavar, **more)

    own.add_argument("--json", action="store_true", help="print JSON, not tables")
    if command == "diff":
        add("a", parse=Path, metavar="A", help="a folder that --out kept")
        add("b", parse=Path, metavar="B", help="another one")
        return own
    add("--out", parse=Path, metavar="DIR", help="folder to keep; new or empty")
    if command == "compare":
        own.add_argument("--wide", action="store_true", help="all intervals, and p, in long lines")
    if command in ("calibrate", "compare"):
        return own
    add("--html", parse=Path, metavar="FILE", help="write a page of the charts")
    if command != "scale":
        add("--arrival", metavar="KIND", default="poisson", help="as hotcount-load run has it")
    # fmt: off
    if command == "search":
        add("--slo", parse=parse_slo, metavar="TERMS", default=SLO,
            help="what a rate must meet: p50, p99, p99.9 ... and max with a time, stale.p99 ... "
            "too, err with a share, lost, double and ghost with a count "
            f"[{SLO.replace('%', '%%')}]")
        add("--from", parse=parse_rate, metavar="RATE", dest="first", default=None,
            help="the first rate [a quarter of what a short closed loop reaches]")
        add("--max-time", parse=parse_time, metavar="TIME", default="3m",
            help="the search for one strategy ends after this, confirmed or not [3m]")
        own.add_argument("--markdown", action="store_true", help="print rows of a Markdown table")
    elif command == "sweep":
        add("--rates", parse=parse_rates, metavar="RATES", required=True,
            help="500:20000:x1.5, 500:2000:+250 or 500,1k,5k")
    elif command == "scale":
        add("-w", "--workers", parse=parse_callers, metavar="LIST", default="1,2,4,8,16,32",
            help="numbers of callers, rising; /async: calls under way [1,2,4,8,16,32]")
        add("--rounds", parse=_count, metavar="N", default="6",
            help="rounds for each number; fewer than 6 have no intervals [6]")
    # fmt: on
    return own


def main(command: str, arguments: Sequence[str]) -> int:
    """Runs the command and returns its exit code.

    0 passed, 1 a contract was broken, 2 bad usage, 3 inconclusive.
    """
    from hotcount.cli import without_urls

    try:
        if importlib.util.find_spec("scipy") is None:
            raise ConfigError("this needs scipy: pip install 'hotcount[report]'")
        options, others = parser(command).parse_known_args(arguments)
        if command in ("diff", "calibrate") and others:
            raise ConfigError(f"unknown option '{others[0]}' of {command}")
        if command == "diff":
            return _diff(options)
        if command == "compare":
            return _compare(options, others)
        return _study(command, options, others, arguments)
    except Refused as refused:
        return refused.code
    except Failed as error:
        _say(command, str(error))
        return error.code
    except ConfigError as error:
        _say(command, without_urls(str(error), arguments))
        return BAD_USAGE


def _say(command: str, text: str) -> None:
    print(f"hotcount load {command}: {text}", file=sys.stderr, flush=True)


def _print(command: str, options: argparse.Namespace, document: Document, text: str) -> int:
    """Prints the results; if stdout cannot be written, the exit code is 3."""
    try:
        sys.stdout.write(json.dumps(document, indent=2) + "\n" if options.json else text)
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _say(command, "the results could not be written")
        return INCONCLUSIVE
    return int(document["exit_code"])


def _keep(folder: Path, name: str, text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failed(f"{folder / name}: {error.strerror}") from None


def _json(document: Document) -> str:
    return json.dumps(document, indent=2) + "\n"


# -- studies --------------------------------------------------------------------------------------


def _study(
    command: str, options: argparse.Namespace, others: Sequence[str], arguments: Sequence[str]
) -> int:
    refused = [*VARIED, "--rounds", *(["--arrival", "--in-flight"] if command == "scale" else [])]
    for each in others:
        if each.split("=")[0] in refused:
            raise ConfigError(f"{each.split('=')[0]} is not an option of {command}")
    if getattr(options, "html", None):
        report.check()
    if command == "search" and options.markdown and options.json:
        raise ConfigError("--markdown and --json cannot be combined")
    if getattr(options, "arrival", "") == "closed":
        raise ConfigError(f"{command} varies the rate; --arrival closed has none")
    given = {"calibrate": IDLE, "scale": CLOSED_LOOP}.get(command, OPEN_LOOP)
    if command == "search":
        given = (*given, "--threshold", options.slo)
    kept = ["--out", str(options.out)] if options.out and command != "calibrate" else []
    with trials([*given, *others, *kept]) as runs:
        # Reports show the command as typed, with passwords removed.
        said = dict(zip(others, runs.ready["command"][3 + len(given) :]))
        whole = ["hotcount", "load", command, *(said.get(each, each) for each in arguments)]
        runs.ready["command"] = whole
        document, text, files = _measured(command, options, runs)
    code = _print(command, options, document, text)
    folders = [options.out] if options.out else []
    if command == "calibrate":
        folders += [folder for folder in [_cache()] if folder]
    for folder in folders:
        for name, content in files.items():
            _keep(folder, name, content)
    if command == "calibrate":
        _say(command, f"the calibration is in {' and '.join(map(str, folders))}")
    elif options.html:
        _draw(options, files)
    return code


def _measured(
    command: str, options: argparse.Namespace, runs: Any
) -> tuple[Document, str, dict[str, str]]:
    """Returns the document, its text for a terminal, and the files of --out by name."""
    from hotcount import _load_search as searches
    from hotcount import _load_studies as studies

    if command == "search":
        document = searches.search(
            runs, options.slo, options.first or 0.0, options.max_time, options.arrival
        )
        text = searches.search_markdown if options.markdown else searches.search_text
        return document, text(document), {"search.json": _json(document)}
    if command == "sweep":
        document = studies.sweep(runs, options.rates, options.arrival)
        files = {"sweep.json": _json(document), "sweep.csv": studies.sweep_csv(document)}
        return document, studies.sweep_text(document), files
    if command == "scale":
        document = studies.scale(runs, options.workers, options.rounds)
        return document, studies.scale_text(document), {"scale.json": _json(document)}
    document = studies.calibrate(runs)
    return document, studies.calibration_text(document), {"calibration.json": _json(document)}


def _cache() -> Path | None:
    """Returns the folder in which hotcount-load looks for a calibration; None without a home."""
    for name, below in (("XDG_CACHE_HOME", "hotcount"), ("HOME", ".cache/hotcount")):
        value = os.environ.get(name, "")
        if value.startswith("/"):
            return Path(value) / below
    return None


def _draw(options: argparse.Namespace, files: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix="hotcount-load-") as temporary:
        folder = options.out or Path(temporary)
        if not options.out:
            for name, content in files.items():
                _keep(folder, name, content)
        page = report.html([report.read(folder)])
    _keep(options.html.parent, options.html.name, page)


# -- comparisons ----------------------------------------------------------------------------------


def _compare(options: argparse.Namespace, others: Sequence[str]) -> int:
    from hotcount._load_compare import COMPARISON, compare_text, with_statistics

    kept = ["--out", str(options.out)] if options.out else []
    command = [program(), "compare", *others, *kept, "--json"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        interruptible(process),
    ):
        said, _ = process.communicate()
    if not said:
        return process.returncode
    document = with_statistics(json.loads(said))
    code = _print("compare", options, document, compare_text(document, options.wide))
    if options.out:
        _keep(options.out, COMPARISON, _json(document))
    return code or process.returncode


def _diff(options: argparse.Namespace) -> int:
    from hotcount._load_compare import diff, diff_text

    document = diff(options.a, options.b)
    return _print("diff", options, document, diff_text(document))
