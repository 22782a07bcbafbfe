"""Successive runs of hotcount-load, each chosen after the last: ``hotcount-load run --each``.

One process of the load generator serves a whole study: it starts the private servers once, gives
each run its own tables and folder, and audits each run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hotcount.errors import HotcountError

INCONCLUSIVE = 3
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class NoProgram(HotcountError):
    """hotcount-load is not installed."""


class Refused(Exception):
    """hotcount-load ended before its first run and printed the reason. `code` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Failed(Exception):
    """A run that could not be measured."""

    def __init__(self, why: str, code: int = INCONCLUSIVE) -> None:
        super().__init__(why)
        self.code = code


def program() -> str:
    """Returns the path of hotcount-load: beside this command or the interpreter, or on PATH."""
    for folder in (Path(sys.argv[0]).resolve().parent, Path(sys.executable).parent):
        found = folder / "hotcount-load"
        if os.access(found, os.X_OK):
            return str(found)
    on_path = shutil.which("hotcount-load")
    if on_path is None:
        raise NoProgram(
            "hotcount-load is not installed: the build did not find its libraries "
            "(CLI11, fmt, nlohmann-json, zlib; `scripts/setup demo` installs them)"
        )
    return on_path


class Trials:
    """A running hotcount-load. `ready` has provenance, and the settings of each strategy."""

    def __init__(self, process: subprocess.Popen[str], interrupted: list[bool]) -> None:
        self._process = process
        self._interrupted = interrupted
        self.ready = self._read()

    @property
    def interrupted(self) -> bool:
        return self._interrupted[0]

    @property
    def provenance(self) -> dict[str, Any]:
        return {name: self.ready[name] for name in ("schema", "command", "versions", "machine")}

    @property
    def settings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ready["settings"]
        return found

    def run(self, name: str, *options: str) -> dict[str, Any]:
        """Makes one run with these options; the folder of --out keeps it under this name."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"name": name, "options": options}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise Failed("hotcount-load has ended") from None
        document = self._read()
        if "error" in document:
            why = str(document["error"]).strip().removeprefix("hotcount-load: ")
            raise Failed(why, document["exit_code"])
        return document

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            if hasattr(self, "ready"):
                raise Failed("hotcount-load has ended")
            raise Refused(code or INCONCLUSIVE)
        document: dict[str, Any] = json.loads(line)
        return document


@contextmanager
def interruptible(process: subprocess.Popen[str]) -> Iterator[list[bool]]:
    """Yields a list whose element becomes true after a signal; then begin no other run.

    Ctrl-C reaches the whole process group: hotcount-load ends the run under way and audits it.
    SIGTERM and SIGHUP reach only this process, which passes them on as SIGINT. A second signal of
    the same kind kills this process.
    """
    interrupted = [False]

    def on_signal(number: int, frame: object) -> None:
        interrupted[0] = True
        signal.signal(number, signal.SIG_DFL)
        if number != signal.SIGINT:
            process.send_signal(signal.SIGINT)

    before = {each: signal.signal(each, on_signal) for each in SIGNALS}
    try:
        yield interrupted
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def trials(options: Sequence[str]) -> Iterator[Trials]:
    process = subprocess.Popen(
        [program(), "run", "--each", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with interruptible(process) as interrupted:
        try:
            yield Trials(process, interrupted)
        finally:
            process.stdout.close()
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
