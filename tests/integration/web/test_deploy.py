"""The recipes of examples/deploy, run as docs/how-to/operate.md describes them."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import hotcount
import pytest
import yaml
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from tests.support.commands import run
from tests.support.eventually import eventually
from tests.support.programs import captured, end
from tests.support.servers import RedisServer, free_port
from tests.support.sqlite_files import rows
from tests.support.together import together

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "examples/deploy"


@pytest.fixture
def tcp_redis(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path, port=free_port()).started() as server:
        yield server


def urls(redis: RedisServer, folder: Path) -> dict[str, str]:
    at = f"redis://127.0.0.1:{redis.port}/0"
    return {
        "DATABASE_URL": f"sqlite:///{folder}/app.db",
        "REDIS_URL": at,
        "BROKER_URL": at[:-1] + "1",
    }


@contextmanager
def running(folder: Path, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A module of Python in the folder of the recipes; its output is in log.txt."""
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=DEPLOY,
            env=os.environ | environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        end(process)


def post(port: int, path: str) -> Any:
    with urlopen(Request(f"http://127.0.0.1:{port}{path}", method="POST"), timeout=30) as answer:
        return yaml.safe_load(answer.read())  # JSON is YAML.


def answers(port: int, path: str) -> bool:
    try:
        post(port, path)
    except OSError:
        return False
    return True


def scraped(port: int) -> dict[str, float]:
    """The metrics of one process, by name, kind and outcome."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            " ".join([sample.name, sample.labels["kind"], sample.labels.get("outcome", "")]): (
                sample.value
            )
            for family in families
            for sample in family.samples
        }


def free_ports(number: int) -> int:
    """The first of `number` free ports in a row."""
    while True:
        first = free_port()
        held = []
        try:
            for port in range(first, first + number):
                held.append(socket.create_server(("127.0.0.1", port)))
            return first
        except OSError:
            continue
        finally:
            for each in held:
                each.close()


def prepare(environment: dict[str, str]) -> None:
    with hotcount.Votes(environment["DATABASE_URL"], missing_items="create") as votes:
        votes.create_tables()
    database, redis = environment["DATABASE_URL"], environment["REDIS_URL"]
    with hotcount.WriteBehindCounter(database, redis) as views:
        views.create_tables()


def counted_views(environment: dict[str, str]) -> int:
    """All that reached Redis, brought to the database by the sidecar's command."""
    at = ("--db", environment["DATABASE_URL"], "--cache", environment["REDIS_URL"])
    done = run("sync", "--views", "hotcount_views", *at, "--once")
    assert done.returncode == 0, done.stderr
    with hotcount.WriteBehindCounter(*at[1::2]) as views:
        return int(views.get("home"))


@pytest.mark.server
def test_gunicorn_workers_are_scraped_one_by_one_and_sigterm_loses_no_view(
    tcp_redis: RedisServer, tmp_path: Path
) -> None:
    port, metrics = free_port(), free_ports(4)
    environment = urls(tcp_redis, tmp_path) | {
        "BIND": f"127.0.0.1:{port}",
        "METRICS_PORT": str(metrics),
    }
    prepare(environment)
    command = ("gunicorn", "--no-control-socket", "--config", "gunicorn.conf.py", "wsgi_app:app")
    with running(tmp_path, *command, **environment) as server:
        eventually(lambda: answers(port, "/views/home"), 60)
        pids: set[int] = set()
        sent = 1

        def work(_: int) -> None:
            nonlocal sent
            while len(pids) < 2 or sent < 100:
                pids.add(post(port, "/views/home")["pid"])
                sent += 1

        together(work, 1)
        assert post(port, "/likes/7/1") == {"value": 1}
        both = [scraped(metrics), scraped(metrics + 1)]
        assert sum(each["hotcount_views_adds_total write_behind ok"] for each in both) == sent
        assert min(each["hotcount_views_adds_total write_behind ok"] for each in both) > 0
        assert sum(each["hotcount_votes_total votes ok"] for each in both) == 1
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0, (tmp_path / "log.txt").read_text()
    assert counted_views(environment) == sent


@pytest.mark.server
def test_uvicorn_is_scraped_and_sigterm_loses_no_view(
    tcp_redis: RedisServer, tmp_path: Path
) -> None:
    port, metrics = free_port(), free_ports(1)
    environment = urls(tcp_redis, tmp_path) | {"METRICS_PORT": str(metrics)}
    prepare(environment)
    command = ("uvicorn", "--factory", "asgi_app:make_app", "--port", str(port))
    with running(tmp_path, *command, **environment) as server:
        eventually(lambda: answers(port, "/views/home"), 60)
        for _ in range(50):
            post(port, "/views/home")
        assert post(port, "/likes/7/1") == {"value": 1}
        found = scraped(metrics)
        assert found["hotcount_views_adds_total write_behind ok"] == 51
        assert found["hotcount_votes_total votes ok"] == 1
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    assert counted_views(environment) == 51, (tmp_path / "log.txt").read_text()


@pytest.mark.server
@pytest.mark.parametrize("recipe", ["asgi_app", "wsgi_app"])
def test_an_outage_is_a_503_that_names_no_server(
    recipe: str, tcp_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = urls(tcp_redis, tmp_path) | {"METRICS_PORT": str(free_ports(1))}
    prepare(environment)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    names = runpy.run_path(str(DEPLOY / f"{recipe}.py"))
    with ExitStack() as ends:
        if recipe == "asgi_app":
            client: Any = ends.enter_context(TestClient(names["make_app"]()))
        else:
            client = names["app"].test_client()
            for name in ("views", "votes", "store", "database"):
                ends.callback(names[name].close)
        assert client.get("/readyz").status_code == 200
        with closing(sqlite3.connect(tmp_path / "app.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            assert client.get("/readyz").status_code == 503
            refused = client.post("/likes/7/1")
            other.rollback()
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert "app.db" not in refused.text
        assert client.post("/likes/7/1").status_code == 200
        tcp_redis.stop()
        assert client.get("/readyz").status_code == 503


@pytest.mark.server
def test_celery_beat_saves_the_counts(tcp_redis: RedisServer, tmp_path: Path) -> None:
    environment = urls(tcp_redis, tmp_path)
    at = (environment["DATABASE_URL"], environment["REDIS_URL"], "cached")
    with hotcount.Votes(*at) as votes:  # type: ignore[arg-type]
        votes.create_tables()
        votes.add_items([7])
        votes.cast(7, 1)
        command = ("celery", "--app", "celery_app", "worker", "--concurrency", "1", "--beat")
        schedule = ("--schedule", str(tmp_path / "schedule"))
        with running(tmp_path, *command, *schedule, **environment) as worker:
            stored = "SELECT vote_count FROM item"
            eventually(lambda: rows(tmp_path / "app.db", stored) == [(1,)], 60)
            worker.send_signal(signal.SIGTERM)
            worker.wait(30)


def unit_of_systemd() -> tuple[str, str, str]:
    """The unit's text, the path of the command in it, and the command's arguments."""
    text = (DEPLOY / "hotcount-sync.service").read_text(encoding="utf-8")
    found = re.search(r"^ExecStart=(\S+) (.*)$", text, re.MULTILINE)
    assert found is not None
    return text, found[1], found[2]


def test_the_command_of_the_unit_of_systemd_is_known() -> None:
    # No database has to be there: the names of variables that are not set are bad usage.
    done = run(*shlex.split(unit_of_systemd()[2]))
    assert (done.returncode, "DATABASE_URL" in done.stderr) == (2, True), done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_unit_of_systemd_is_valid(tmp_path: Path) -> None:
    text, command, _ = unit_of_systemd()
    unit = tmp_path / "hotcount-sync.service"
    unit.write_text(text.replace(command, sys.executable), encoding="utf-8")
    checked = captured(["systemd-analyze", "verify", "--man=no", str(unit)])
    assert [line for line in checked.stderr.splitlines() if unit.name in line] == []


def test_the_manifest_is_a_deployment_whose_pods_end_in_time() -> None:
    manifest = yaml.safe_load((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("apps/v1", "Deployment")
    spec = manifest["spec"]["template"]["spec"]
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert manifest["spec"]["selector"]["matchLabels"] == labels
    web, sync = spec["containers"]
    assert web["readinessProbe"]["exec"]["command"][:2] == ["hotcount", "ready"]
    config = (DEPLOY / "gunicorn.conf.py").read_text(encoding="utf-8")
    graceful = int(config.partition("graceful_timeout = ")[2].split()[0])
    assert max(graceful, float(sync["command"][-1])) < spec["terminationGracePeriodSeconds"]
    assert web["command"][1:] == ["--config", "gunicorn.conf.py", "wsgi_app:app"]
    done = run(*sync["command"][1:])
    assert (done.returncode, "DATABASE_URL" in done.stderr) == (2, True), done.stderr
