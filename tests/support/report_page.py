"""`hotcount report` as a process, and results that say something else than what was measured."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

# Passed; or this machine was too busy for the rate, and what is there was measured all the same.
MEASURED = (0, 3)


def report(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hotcount", "report", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def body_of(folder: Path, page: Path) -> str:
    """What the page of a folder shows, without its scripts."""
    done = report(folder, "-o", page)
    assert (done.returncode, done.stderr) == (0, "")
    return page.read_text(encoding="utf-8").partition("<body>")[2]


def changed(folder: Path, to: Path, name: str, **what: Any) -> Path:
    """A copy whose JSON differs."""
    shutil.copytree(folder, to)
    document = json.loads((to / name).read_text())
    for key, value in what.items():
        if value is None:
            document.pop(key)
        else:
            document[key] = value
    (to / name).write_text(json.dumps(document))
    return to
