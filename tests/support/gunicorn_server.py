"""gunicorn with --preload over an application of tests/support, and what it answers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.support.eventually import eventually
from tests.support.programs import end
from tests.support.servers import free_port

ROOT = Path(__file__).parents[2]
WORKERS = 3


@dataclass
class Gunicorn:
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def get(self, path: str = "/") -> dict[str, Any]:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except HTTPError as error:
            raise AssertionError(error.code, error.read(), self.log.read_text()) from error

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            self.get()
        except OSError:
            return False
        return True


@contextmanager
def gunicorn(app: str, folder: Path, *options: str, **environment: str) -> Iterator[Gunicorn]:
    """It writes its log to the folder; each variable's name begins with HOTCOUNT_TEST_."""
    port = free_port()
    log = folder / "gunicorn.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "gunicorn", "--preload", "--no-control-socket"),
                *("--bind", f"127.0.0.1:{port}", "--workers", str(WORKERS), *options),
                f"tests.support.{app}",
            ],
            cwd=ROOT,
            env=os.environ | {f"HOTCOUNT_TEST_{n}": value for n, value in environment.items()},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    served = Gunicorn(process, port, log)
    try:
        eventually(served.answers, 60)
        yield served
    finally:
        end(process)  # The master takes its workers along.
