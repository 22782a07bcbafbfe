"""How often hotcount load reports a difference: between a strategy and itself, and between a
strategy and a control that is slower by a known share.

    python -m loadtest.peers.differences --comparisons 50 --rounds 80 --seconds 0.02

Each comparison is a command of its own with its own seed: `compare -s memory`, whose control is
the same strategy once more. As many other comparisons have a control that is slower by --slower. A
difference reported in the first kind is a false positive, one in the second kind a true positive.
Nothing else should run on the machine. Many short rounds find more than few long ones: disturbances
of a shared machine often last less than a second, so only consecutive loads see the same ones.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

LEAST_ROUNDS = 6


def comparison(seed: int, slower: float, chosen: argparse.Namespace) -> dict[str, Any]:
    """The ratio of the control to the strategy, as in compare.json."""
    done = subprocess.run(
        [
            *[sys.executable, "-m", "hotcount", "load", "compare"],
            *["--workload", "counters", "-s", "memory"],
            *["--rounds", str(chosen.rounds), "-d", f"{chosen.seconds:g}s", "--warmup", "5ms"],
            *["-w", "1", "--items", "1000", "--seed", str(seed), "--progress", "none", "--json"],
            *["--control-slower", f"{slower:g}"],
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    # 3, inconclusive: in some round a strategy completed no call.
    if done.returncode not in (0, 3):
        raise RuntimeError(done.stderr)
    (control,) = json.loads(done.stdout)["parts"][0]["references"]
    ratio: dict[str, Any] = control["ratio_to_baseline"]
    return ratio


def called(slower: float, chosen: argparse.Namespace) -> int:
    """The number of comparisons that report a difference; prints one line for each comparison."""
    count = 0
    for seed in range(chosen.seed, chosen.seed + chosen.comparisons):
        ratio = comparison(seed, slower, chosen)
        # Rounds without a call have no ratio, and too few ratios give no interval.
        low, high = ratio["interval"] or (ratio["min"], ratio["max"])
        count += ratio["difference"]
        print(
            f"{100 * slower:g} % slower, seed {seed}: {ratio['median']:.3f} ({low:.3f} to "
            f"{high:.3f}), p {ratio['p']:.4f}{', called' if ratio['difference'] else ''}",
            flush=True,
        )
    return count


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.peers.differences",
        description="how often compare calls a difference that is not there, and one that is",
    )
    parser.add_argument("--comparisons", type=int, default=50, help="of each kind [50]")
    parser.add_argument("--rounds", type=int, default=80, help="of each comparison [80]")
    parser.add_argument("--seconds", type=float, default=0.02, help="of each load [0.02]")
    parser.add_argument("--seed", type=int, default=1, help="of the first comparison [1]")
    parser.add_argument("--slower", type=float, default=0.05, help="share to find [0.05]")
    chosen = parser.parse_args(words)
    if chosen.comparisons < 1 or chosen.rounds < LEAST_ROUNDS or chosen.seconds <= 0:
        parser.error(
            f"--comparisons takes 1 or more, --rounds {LEAST_ROUNDS} or more, --seconds more than 0"
        )
    for slower in (0.0, chosen.slower):
        found = called(slower, chosen)
        print(f"{100 * slower:g} % slower: called in {found} of {chosen.comparisons}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
