"""Limits of FastAPI, Flask and Django behind their real servers, with two processes each, while
Redis works, is killed, stopped and started again. With -s pytest shows the answers, as rows:
which server, how Redis is, the path, the statuses. "told" are those with all headers of limits.
"""

from __future__ import annotations

import http.client
import itertools
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
from tests.support.programs import end
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


Answer = tuple[int, dict[str, str]]


@dataclass
class Served:
    server: str
    port: int
    log: Path
    redis: RedisServer

    def get(self, path: str, user: str = "") -> Answer:
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

    def get_all(self, redis: str, *paths: str, user: str = "") -> list[Answer]:
        """The answers to requests of one user, printed. redis: how it is meanwhile."""
        user = user or uuid.uuid4().hex
        answers = [self.get(path, user) for path in paths]
        self.show(redis, paths[0], answers)
        return answers

    def show(self, redis: str, path: str, answers: list[Answer]) -> None:
        kinds = [
            f"{status}{' told' if told.keys() >= TOLD else ''}"
            f"{' and Retry-After' if 'retry-after' in told else ''}"
            for status, told in answers
        ]
        shown = ", ".join(f"{len(list(each))} x {kind}" for kind, each in itertools.groupby(kinds))
        print(f"| {self.server} | {redis} | {path} | {shown} |")

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
    one = Served(request.param, port, log, redis)
    try:
        eventually(lambda: process.poll() is None and one.answers(), 60)
        yield one
    finally:
        try:
            end(process)
        finally:
            redis.stop()


def test_each_response_of_a_limited_request_has_the_headers(served: Served) -> None:
    answers = served.get_all("works", "/two", "/two", "/two")
    assert [status for status, _ in answers] == [200, 200, 429]
    assert [set(told) for _, told in answers] == [TOLD, TOLD, {*TOLD, "retry-after"}]
    assert [told["x-ratelimit-remaining"] for _, told in answers] == ["1", "0", "0"]
    assert 20 <= int(answers[2][1]["retry-after"]) <= 30
    for path, status in (("/open", 200), ("/denied", 401), ("/boom", 500)):
        answer = served.get_all("works", path)[0]
        assert (answer[0], set(answer[1])) == (status, TOLD)


def test_a_decorated_function_is_told_too_and_its_refusal_is_429(served: Served) -> None:
    first, second = served.get_all("works", "/wrapped", "/wrapped")
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
        answers = served.get_all(how, *["/two"] * 12, user="anna")
        took = time.monotonic() - begun
        others = [served.get_all(how, path)[0] for path in ("/open", "/denied", "/boom")]
        wrapped = served.get_all(how, "/wrapped", "/wrapped")
    finally:
        if how == "killed":
            redis.start()
        else:
            redis.send_signal(signal.SIGCONT)
    assert [status for status, _ in answers] == [200] * 12, served.log.read_text()[-2000:]
    assert took < PATIENCE
    assert [status for status, _ in [*others, *wrapped]] == [200, 401, 500, 200, 200]
    assert all(set(told) == TOLD for _, told in [*answers, *others, *wrapped])

    # It counts again, in both processes.
    def refuses() -> bool:
        user = uuid.uuid4().hex
        again = [served.get("/two", user) for _ in range(3)]
        if [status for status, _ in again] != [200, 200, 429]:
            return False
        served.show(f"back after {how}", "/two", again)
        return True

    eventually(refuses)
