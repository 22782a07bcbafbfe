"""Counters on Redis: hotcount beside other clients, on one private server, in alternating rounds.

    make peers
    make peers PEERS_ARGS="--only sync,batch --rounds 7 --json peers.json"

Every contender adds to keys of the same names, which are taken away after it; before that their
sum must be what the contender was told that it added, or the run fails. Only the ratios within one
run say something: they move less than the figures do. Server and clients share the machine, so a
client that costs less CPU leaves more to the server.

Results are on stdout, progress on stderr. Exit code: 0, or 1 if an add was lost, doubled or
failed, 2 on bad usage or if something is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import sys
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Any

import hotcount

from loadtest.peers import native, options
from loadtest.peers.cases import GROUPS, PACKAGES, Setup
from loadtest.peers.private_servers import start_redis
from loadtest.peers.report import report, summary
from loadtest.peers.rounds import Case, measure
from tests.support.servers import RedisServer, free_port

DISTRIBUTIONS = {
    "redis": "redis",
    "hiredis": "hiredis",
    "glide_sync": "valkey-glide-sync",
    "glide": "valkey-glide",
    "throttled": "throttled-py",
    "limits": "limits",
}


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = options.parser_for(
        "redis_counters",
        "Counters on Redis: hotcount beside other clients, in alternating rounds.",
        list(GROUPS),
        rounds=5,
        seconds=0.5,
        short=["--only", "sync,batch,cpp", "--rounds", "3", "--seconds", "0.3"],
    )
    parser.add_argument(
        "--build",
        type=Path,
        default=native.ROOT / "build" / "release",
        metavar="FOLDER",
        help="where hotcount-peers-cpp was built [build/release]",
    )
    return options.parse(parser, words)


def packages_of(groups: list[str]) -> list[str]:
    return [name for name in DISTRIBUTIONS if any(name in PACKAGES[group] for group in groups)]


def versions(server: RedisServer, groups: list[str]) -> dict[str, str]:
    with server.redis() as store:
        info = store.execute("INFO", "server").decode()
    return {
        "hotcount": hotcount.__version__,
        "server": re.findall(r"(?:redis|valkey)_version:(\S+)", info)[-1],
        "python": platform.python_version(),
        **{
            DISTRIBUTIONS[name]: metadata.version(DISTRIBUTIONS[name])
            for name in packages_of(groups)
        },
        **(native.go_versions() if "cpp" in groups else {}),
        **(native.rust_versions() if "limiters" in groups else {}),
    }


def compare(server: RedisServer, chosen: argparse.Namespace) -> dict[str, Any]:
    """All cases of the chosen groups on that server, as a document for report() and JSON."""
    with ExitStack() as stack:
        setup = Setup(server, chosen.build, stack)
        cases: list[Case] = setup.cases(chosen.only)
        for line in setup.left_out:
            print(line, file=sys.stderr)
        measure(server, cases, chosen.rounds, chosen.seconds)
    return {
        "rounds": chosen.rounds,
        "seconds": chosen.seconds,
        "cpus": os.cpu_count(),
        "versions": versions(server, chosen.only),
        "left_out": setup.left_out,
        "cases": [summary(case) for case in cases],
    }


def main(words: list[str] | None = None) -> int:
    chosen = arguments(words)
    for package in packages_of(chosen.only):
        if importlib.util.find_spec(package) is None:
            print(f"{DISTRIBUTIONS[package]} is not installed: run `make peers`", file=sys.stderr)
            return 2

    def run() -> None:
        with ExitStack() as stack:
            document = compare(start_redis(stack, port=free_port()), chosen)
        print(report(document))
        options.keep(chosen, document)

    return options.exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main())
