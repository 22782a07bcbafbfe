"""Limits of FastAPI, Flask and Django behind their real servers, with two processes each, while
Redis works, is killed, stopped and started again."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.servers import RedisServer, free_port

pytestmark = pytest.mark.server

ROOT = Path(__file__).resolve().parents[3]
APPS = "tests.support.limit_apps"
GUNICORN = ("gunicorn", "--no-control-socket", "--workers", "2", "--threads", "4")
UVICORN = ("uvicorn", "--factory", "--workers", "2", "--log-level", "warning")
SERVERS = {
    "fastapi-uvicorn": (*UVICORN, f"{APPS}:fastapi_app"),
    "flask-gunicorn": (*GUNICORN, f"{APPS}:flask_app()"),
    "django-gunicorn": (*GUNICORN, f"{APPS}:django_wsgi()"),
    "django-uvicorn": (*UVICORN, f"{APPS}:django_asgi"),
}
# No call waits longer than the store's timeout of 0.3 s; what a busy machine adds is ours.
PATIENCE = 3.0
TOLD = {
    *("ratelimit", "ratelimit-policy"),
    *("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"),
}


@dataclass
class Served:
    port: int
    log: Path
    redis: RedisServer

    def get(self, path: str, user: str = "") -> tuple[int, dict[str, str]]:
        """The status and the headers of limits, of which there is one each."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path, headers={"X-User": user or uuid.uuid4().hex})
            response = connection.getresponse()
            response.read()
            names = [name.lower() for name, _ in response.getheaders()]
            told = {name for name in names if "ratelimit" in name or name == "retry-after"}
            assert all(names.count(name) == 1 for name in told)
            return response.status, {name: response.headers[name] for name in told}
        finally:
            connection.close()

    def answers(self) -> bool:
        try:
            return self.get("/open")[0] == 200
        except OSError:
            return False


@pytest.fixture(scope="module", params=SERVERS, ids=str)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp(request.param)
    redis = RedisServer(folder, port=free_port()).start()
    port, log = free_port(), folder / "server.log"
    program, *options = SERVERS[request.param]
    bind = ("--bind", f"127.0.0.1:{port}") if program == "gunicorn" else ("--port", str(port))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", program, *bind, *options],
            cwd=ROOT,
            env={**os.environ, "HOTCOUNT_TEST_URL": f"redis://127.0.0.1:{redis.port}"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    one = Served(port, log, redis)
    try:
        eventually(lambda: process.poll() is None and one.answers(), 60)
        yield one
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        redis.stop()


def test_each_response_of_a_limited_request_has_the_headers(served: Served) -> None:
    user = uuid.uuid4().hex
    answers = [served.get("/two", user) for _ in range(3)]
    assert [status for status, _ in answers] == [200, 200, 429]
    assert [set(told) for _, told in answers] == [TOLD, TOLD, {*TOLD, "retry-after"}]
    assert [told["x-ratelimit-remaining"] for _, told in answers] == ["1", "0", "0"]
    assert 20 <= int(answers[2][1]["retry-after"]) <= 30
    assert [served.get(path)[0] for path in ("/open", "/denied", "/boom")] == [200, 401, 500]
    assert all(set(served.get(path)[1]) == TOLD for path in ("/open", "/denied", "/boom"))


def test_a_decorated_function_is_told_too_and_its_refusal_is_429(served: Served) -> None:
    user = uuid.uuid4().hex
    first, second = served.get("/wrapped", user), served.get("/wrapped", user)
    assert (first[0], set(first[1])) == (200, TOLD)
    assert (second[0], set(second[1])) == (429, {*TOLD, "retry-after"})


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_an_outage_is_no_error_and_no_stall_where_the_policy_is_open(
    served: Served, how: str
) -> None:
    redis = served.redis
    if how == "killed":
        redis.kill()
    else:
        redis.send_signal(signal.SIGSTOP)
    try:
        begun = time.monotonic()
        statuses = [served.get("/two", "anna")[0] for _ in range(12)]
        took = time.monotonic() - begun
    finally:
        if how == "killed":
            redis.start()
        else:
            redis.send_signal(signal.SIGCONT)
    assert statuses == [200] * 12, served.log.read_text()[-2000:]
    assert took < PATIENCE

    # It counts again, in both processes.
    def refuses() -> bool:
        user = uuid.uuid4().hex
        return [served.get("/two", user)[0] for _ in range(3)] == [200, 200, 429]

    eventually(refuses)
