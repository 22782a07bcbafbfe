"""examples/vote_page.py as a process, and what a browser without a face asks it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PROGRAM = str(Path(__file__).parents[2] / "examples/vote_page.py")


class VotePage:
    """Serves on that port, 0 for a free one; its database is under `folder`."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, PROGRAM, f"127.0.0.1:{port}", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        assert self._process.stderr is not None
        self.url = self._process.stderr.readline().split(" ")[0]
        self.port = urlsplit(self.url).port

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        text = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        connection.request(method, path, text, headers)
        response = connection.getresponse()
        answer = (response.status, response.headers, response.read())
        connection.close()
        return answer

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        status, _, answer = self.ask("POST", path, body, **headers)
        return status, json.loads(answer)

    @contextmanager
    def events(self) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with closing(connection):
            connection.request("GET", "/events")
            with connection.getresponse() as response:
                yield response

    @contextmanager
    def states(self) -> Iterator[Iterator[dict[str, Any]]]:
        """What one window is told, as it comes."""
        with self.events() as response:
            yield (json.loads(line[6:]) for line in response if line.startswith(b"data: "))

    def database(self) -> Path:
        (file,) = self.folder.glob("hotcount-demo-*/votes.db")
        return file

    def send(self, sent: signal.Signals) -> None:
        self._process.send_signal(sent)

    def stop(self) -> tuple[int, dict[str, Any]]:
        """Its exit code and what it said of the audit."""
        self._process.send_signal(signal.SIGINT)
        out, errors = self._process.communicate(timeout=30)
        assert errors == ""
        return self._process.returncode, json.loads(out)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
