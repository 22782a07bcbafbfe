"""The options that all comparisons have, such as --rounds and --json; and how they end."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from loadtest.peers.rounds import Failed, LostAdds


def parser_for(
    module: str,
    description: str,
    groups: Sequence[str],
    *,
    rounds: int,
    seconds: float,
    short: Sequence[str],
) -> argparse.ArgumentParser:
    """A parser of these options; rounds and seconds are defaults, short the words of --short."""
    parser = argparse.ArgumentParser(
        prog=f"python -m loadtest.peers.{module}", description=description
    )
    parser.add_argument(
        "--rounds", type=int, default=rounds, help=f"rounds of each case [{rounds}]"
    )
    parser.add_argument(
        "--seconds", type=float, default=seconds, help=f"length of each load [{seconds}]"
    )
    parser.add_argument(
        "--only",
        type=groups_of(groups),
        default=list(groups),
        metavar="GROUPS",
        help=f"some of {','.join(groups)} [all]",
    )
    parser.add_argument(
        "--short",
        action="store_const",
        const=short,
        help=f"a few minutes, to hold a change against a build kept elsewhere: {shlex.join(short)}",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    return parser


def groups_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Reads names between commas; any other name is bad usage that lists the known ones."""

    def read(text: str) -> list[str]:
        chosen = text.split(",")
        if not set(chosen) <= set(known):
            raise argparse.ArgumentTypeError(f"takes some of {','.join(known)}, not {text!r}")
        return [group for group in known if group in chosen]

    return read


def parse(parser: argparse.ArgumentParser, words: list[str] | None) -> argparse.Namespace:
    chosen = parser.parse_args(words)
    if chosen.short:  # Before the others, so that they may say something else.
        chosen = parser.parse_args([*chosen.short, *(sys.argv[1:] if words is None else words)])
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error("--rounds takes 1 or more, --seconds more than 0")
    return chosen


def exit_code_of(compare: Callable[[], object]) -> int:
    """0, or 1 if an add or a vote was lost, doubled or failed, 2 if something is missing."""
    try:
        compare()
    except (LostAdds, Failed) as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        return 1
    except (RuntimeError, subprocess.SubprocessError) as missing:
        print(missing, file=sys.stderr)
        return 2
    return 0


def keep(chosen: argparse.Namespace, document: object) -> None:
    if chosen.json:
        chosen.json.write_text(json.dumps(document, indent=2) + "\n")
