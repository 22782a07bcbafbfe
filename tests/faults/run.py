"""make faults: runs the tests of tests/faults/rows.py and prints how many of each row passed.

    python -m tests.faults.run [--rows 6,11-14] [--json FILE] [argument of pytest ...]

The exit code is 1 if a row has a test that failed, a void one, or none for one of its backends.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.faults.rows import ROWS, Row, backend_of, rows_of

ROOT = Path(__file__).parents[2]
COLUMNS = {"memory": "memory", "redis": "redis", "sqlite": "sqlite"}
COLUMNS |= {"postgresql": "postgr", "mariadb": "maria", "mysql": "mysql"}
Result = dict[str, Any]


def numbers_in(text: str) -> set[int]:
    """The numbers of rows: "6,11-14" is five of them."""
    numbers: set[int] = set()
    for word in filter(None, text.split(",")):
        first, _, last = word.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def reason_of(result: Result) -> str:
    """Why a test did not pass, in a line."""
    lines = [line for line in result["said"].splitlines() if line.strip()]
    errors = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
    return str(next(iter(errors or lines[-1:]), ""))


def files_of(rows: list[Row]) -> list[str]:
    names = (name for row in rows for names in row.tests.values() for name in names.split())
    return sorted({"tests/" + name.partition("::")[0] for name in names})


def results_in(file: Path) -> list[Result]:
    """One for each test: a failed teardown takes the place of a call that passed."""
    results: dict[str, Result] = {}
    for line in file.read_text().splitlines():
        result: Result = json.loads(line)
        before = results.get(result["test"])
        if before is None or before["outcome"] == "passed":
            results[result["test"]] = result
    return list(results.values())


def score(row: Row, results: list[Result]) -> dict[str, Any]:
    """What became of a row: for each backend [passed, run], and the number of void tests."""
    backends: dict[str, list[int]] = {name: [0, 0] for name in row.backends.split()}
    own = [result for result in results if row in rows_of(result["test"])]
    for result in own:
        counts = backends.setdefault(backend_of(result["test"], row), [0, 0])
        counts[0] += result["outcome"] == "passed"
        counts[1] += 1
    void = sum(result["outcome"] == "void" for result in own)
    return {
        "row": row.number,
        "fault": row.what,
        "backends": backends,
        "void": void,
        "passed": void == 0 and all(passed == run > 0 for passed, run in backends.values()),
        "seconds": round(sum(result["seconds"] for result in own), 1),
        "failed": {
            result["test"]: reason_of(result) for result in own if result["outcome"] != "passed"
        },
    }


def scorecard(scores: list[dict[str, Any]]) -> str:
    heads = "".join(f"{name:>8}" for name in COLUMNS.values())
    lines = [f"{'row':>3} {'fault':<37.37}{heads}{'void':>5}{'s':>6}"]
    for each in scores:
        cells = (each["backends"].get(name) for name in COLUMNS)
        counts = "".join(f"{'-' if cell is None else f'{cell[0]}/{cell[1]}':>8}" for cell in cells)
        sign = " " if each["passed"] else "!"
        head = f"{each['row']:>3}{sign}{each['fault']:<37.37}"
        lines.append(f"{head}{counts}{each['void']:>5}{each['seconds']:>6.0f}")
        for test, reason in each["failed"].items():
            lines += [f"     {test}", f"         {reason:.300}"]
    passed = sum(each["passed"] for each in scores)
    lines.append(f"{passed} of {len(scores)} rows passed")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--rows", default="", metavar="6,11-14")
    parser.add_argument("--json", type=Path, metavar="FILE", default=ROOT / "build/faults.json")
    arguments, more = parser.parse_known_args()
    numbers = numbers_in(arguments.rows)
    rows = [row for row in ROWS if not numbers or row.number in numbers]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results"
        file.touch()
        subprocess.run(
            [
                *("scripts/pytests", "--long", str(os.cpu_count()), "--faults", str(file)),
                # A process that is done waits for the others, whose storms take minutes.
                *("-o", "finish_timeout=1200"),
                *("--fault-rows", ",".join(map(str, sorted(numbers))), *more, *files_of(rows)),
            ],
            cwd=ROOT,
            check=False,
        )
        results = results_in(file)
    scores = [score(row, results) for row in rows]
    ended = {"seconds": round(time.monotonic() - began), "rows": scores, "tests": results}
    arguments.json.parent.mkdir(exist_ok=True)
    arguments.json.write_text(json.dumps(ended, indent=1) + "\n")
    print(scorecard(scores))
    print(f"{len(results)} tests in {ended['seconds']} s; {arguments.json}")
    return 0 if all(each["passed"] for each in scores) else 1


if __name__ == "__main__":
    sys.exit(main())
