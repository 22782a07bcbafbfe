"""The files that git knows, for the checks of the code base."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@cache
def tracked() -> tuple[Path, ...]:
    """Skips the test outside of a work tree: an unpacked archive has no list."""
    try:
        names = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git work tree")
    # A file that is deleted but not yet committed is listed too.
    return tuple(ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file())
