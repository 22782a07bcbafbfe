"""The hotcount command, and programs of a test's own, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hotcount", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def run_python(program: str, *arguments: str, **options: Any) -> str:
    """What it prints. It must end well."""
    command = [sys.executable, "-X", "faulthandler", "-c", program, *arguments]
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, capture_output=True, text=True, timeout=120, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
