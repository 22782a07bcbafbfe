"""The cost of hardening: the micro benchmarks with it and without it, in alternating rounds.

    make bench-hardening                      # HARDENING_ARGS="--rounds 20" for more

Builds hotcount-micro once more without HOTCOUNT_HARDENING (build/unhardened, the core and nothing
else), and prints for each benchmark the median of its time with hardening over its time without,
of all rounds, and the range. Of one machine's noise the range tells: look at ratios whose range
leaves 1 out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HARDENED = ROOT / "build/release/loadtest/micro/hotcount-micro"
PLAIN = ROOT / "build/unhardened"
UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def build_plain() -> Path:
    off = [f"-DHOTCOUNT_{part}=OFF" for part in ("HARDENING", "TESTS", "LOADTEST", "PYTHON")]
    subprocess.run(
        ["cmake", "-S", str(ROOT), "-B", str(PLAIN), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
        + ["-DHOTCOUNT_MICRO=ON", *off],
        check=True,
        stdout=sys.stderr,
    )
    subprocess.run(
        ["cmake", "--build", str(PLAIN), "--target", "hotcount-micro"],
        check=True,
        stdout=sys.stderr,
    )
    return PLAIN / "loadtest/micro/hotcount-micro"


def times(program: Path, seconds: float, only: str) -> dict[str, float]:
    """Nanoseconds by benchmark."""
    done = subprocess.run(
        [str(program), "--benchmark_format=json", f"--benchmark_min_time={seconds}"]
        + [f"--benchmark_filter={only}"],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    found = {}
    for each in json.loads(done.stdout)["benchmarks"]:
        wall = "real_time" in each["name"]
        found[each["name"]] = each["real_time" if wall else "cpu_time"] * UNITS[each["time_unit"]]
    return found


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench-hardening", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=10, help="of both builds (default: 10)")
    parser.add_argument("--seconds", type=float, default=0.1, help="a benchmark (default: 0.1)")
    parser.add_argument("--only", default=".", metavar="REGEX", help="benchmarks of these names")
    chosen = parser.parse_args(words)
    programs = {"hardened": HARDENED, "plain": build_plain()}
    ratios: dict[str, list[float]] = {}
    for number in range(chosen.rounds):
        print(f"round {number + 1}/{chosen.rounds}", file=sys.stderr, flush=True)
        # The builds take turns to go first: a machine that warms up or slows down favours neither.
        order = sorted(programs, reverse=number % 2 == 1)
        taken = {name: times(programs[name], chosen.seconds, chosen.only) for name in order}
        for name, hardened in taken["hardened"].items():
            ratios.setdefault(name, []).append(hardened / taken["plain"][name])
    print(f"{'time with hardening / without':<44} {'median':>7}  range of {chosen.rounds} rounds")
    for name, all_rounds in ratios.items():
        low, high = min(all_rounds), max(all_rounds)
        print(f"{name:<44} {statistics.median(all_rounds):>7.3f}  {low:.3f} to {high:.3f}")
    print(f"{'all':<44} {statistics.median(map(statistics.median, ratios.values())):>7.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
