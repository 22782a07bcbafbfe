"""Python in a process of its own."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def captured(
    words: Sequence[str | Path], *, timeout: float = 110, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, and returns its exit code and output as text."""
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, **options)


def run_python(
    *arguments: object, cwd: Path = ROOT, timeout: float = 60, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs the interpreter with these arguments, and returns its exit code and output."""
    return captured([sys.executable, *map(str, arguments)], cwd=cwd, timeout=timeout, **options)


def end(process: subprocess.Popen[Any]) -> None:
    """SIGTERM, and SIGKILL to one that has not ended after a minute, which fails the test."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
