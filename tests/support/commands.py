"""The hotcount command, and programs of a test's own, in processes of their own."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.programs import run_python


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "hotcount", *arguments)


def output_of(program: str, *arguments: object, **options: Any) -> str:
    """What a program of Python prints. It must end well."""
    done = run_python("-X", "faulthandler", "-c", program, *arguments, timeout=120, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def syncing(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Callable[[], str]]]:
    """`hotcount sync` until SIGTERM, and what reads a line of what it says."""
    command = [sys.executable, "-m", "hotcount", "sync", "--interval", "0.01", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stderr is not None
            yield process, process.stderr.readline
        finally:
            process.kill()  # Where the test failed.


def told_to_stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=60)
