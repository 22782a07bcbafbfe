"""A process of tests that hangs in C, during a test or after the last one, ends with its stacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# PyDLL keeps the GIL, and a mutex that its own thread waits for is not left for a signal.
HANGS = """
import atexit, ctypes
def hang(lock=ctypes.PyDLL(None).pthread_mutex_lock, mutex=ctypes.create_string_buffer(64)):
    lock(mutex)
    lock(mutex)
"""
IN_A_TEST = f"{HANGS}def test_it(): hang()"
AT_EXIT = f"{HANGS}def test_it(): atexit.register(hang)"


@pytest.mark.parametrize(
    ("test", "processes", "finish_timeout", "says"),
    [
        pytest.param(IN_A_TEST, "0", 30, "Timeout (0:00:02)!", id="in-a-test"),
        pytest.param(
            IN_A_TEST, "1", 30, "crashed while running 'test_it.py::test_it'", id="worker"
        ),
        pytest.param(AT_EXIT, "0", 1, "Timeout (0:00:01)!", id="at-exit"),
    ],
)
def test_a_process_that_hangs_ends(
    tmp_path: Path, test: str, processes: str, finish_timeout: int, says: str
) -> None:
    (tmp_path / "test_it.py").write_text(test)
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\ntimeout = 1\nhang_grace = 1\nfinish_timeout = {finish_timeout}\n"
    )
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.support.hang_guard"),
            *("-p", "pytest_timeout", "-p", "xdist", "-n", processes, "--max-worker-restart=0"),
            *("-c", str(tmp_path / "pytest.ini"), "-p", "no:cacheprovider", str(tmp_path)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert run.returncode != 0, run.stdout
    assert says in run.stdout + run.stderr
