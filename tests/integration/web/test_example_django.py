"""examples/django under gunicorn, and docs/how-to/django-votes.md as a reader follows it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2

from tests.support.eventually import eventually
from tests.support.programs import captured
from tests.support.servers import PostgresServer, RedisServer, free_port

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "django"
FILL = """
from django.contrib.auth.models import User
from blog.models import Post
Post.objects.create(title="first")
for name in ("anna", "ben"):
    User.objects.create_superuser(name, password=name)
"""


def page(client: httpx2.Client, path: str, **form: str) -> str:
    """A page, or what a form of it leads to."""
    if form or path.endswith("like/"):
        form["csrfmiddlewaretoken"] = client.cookies["csrftoken"]
        answer = client.post(path, data=form)
    else:
        answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_likes_and_views_are_in_the_admin(
    tmp_path: Path, postgres_server: PostgresServer, own_redis: RedisServer
) -> None:
    site = tmp_path / "site"
    shutil.copytree(EXAMPLE, site, ignore=shutil.ignore_patterns("__pycache__", "*.sqlite3"))
    name = f"example_{os.getpid()}"
    postgres_server.psql(f"CREATE DATABASE {name}")
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": str(postgres_server.folder),
        "NAME": name,
        "USER": postgres_server.superuser,
    }
    options: dict[str, Any] = {
        "cwd": site,
        "env": os.environ | {"BLOG_DATABASE": json.dumps(database), "BLOG_REDIS": own_redis.url},
    }
    for command in (("migrate", "-v0"), ("shell", "-v0", "-c", FILL)):
        subprocess.run([sys.executable, "manage.py", *command], check=True, timeout=110, **options)
    address = f"127.0.0.1:{free_port()}"
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "--preload", "--no-control-socket", "--workers", "2"]
        + ["--bind", address, "manage:application"],
        **options,
    )
    clients = [
        httpx2.Client(base_url=f"http://{address}", follow_redirects=True, timeout=30)
        for _ in range(2)
    ]
    try:
        eventually(lambda: answers(clients[0]), 60)
        for client, user in zip(clients, ("anna", "ben"), strict=True):
            page(client, "/admin/login/?next=/1/")
            page(client, "/admin/login/?next=/1/", username=user, password=user)
            assert "&#9825;" in page(client, "/1/")
            assert "&#9829;" in page(client, "/1/like/")
        assert "&#9825; 1" in page(clients[0], "/1/like/")
        listed = page(clients[1], "/admin/blog/post/")
        assert re.findall(r'field-(votes|views_today)">(\d+)<', listed) == [
            ("votes", "1"),
            ("views_today", str(VIEWS)),
        ]
        assert f" {VIEWS}</div>" in page(clients[1], "/admin/blog/post/1/change/")
    finally:
        server.terminate()
        server.wait(60)
        for client in clients:
            client.close()


# Each signed in, looked and liked, which leads back; one liked again.
VIEWS = 2 * 3 + 1


def answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/admin/login/").status_code == 200
    except httpx2.TransportError:
        return False


ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^([^\n]*)\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# They ask, or serve until they are stopped.
LEFT_OUT = {"pip", "createsuperuser", "runserver"}


def test_the_document_leads_to_a_like_button(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "how-to" / "django-votes.md").read_text(encoding="utf-8")
    ran = []
    for before, language, text in BLOCK.findall(document):
        if language != "sh":
            (name,) = re.findall(r"`([\w/]+\.(?:py|html))`", before)
            file = tmp_path / name
            file.parent.mkdir(exist_ok=True)
            old = file.read_text() if before.startswith("At the end") else ""
            file.write_text(old + text)
            continue
        for line in text.splitlines():
            words = shlex.split(line)
            if LEFT_OUT.isdisjoint(words):
                program = ["-m", "django"] if words[0] == "django-admin" else [words[1]]
                rest = words[1:] if words[0] == "django-admin" else words[2:]
                done = captured(
                    [sys.executable, *program, *rest],
                    cwd=tmp_path,
                    env={**os.environ, "PYTHONPATH": str(tmp_path)},
                )
                assert done.returncode == 0, done.stdout + done.stderr
                ran.append((rest[0], done.stdout + done.stderr))
    assert [name for name, _ in ran] == [
        *("startproject", "startapp", "makemigrations", "migrate", "test")
    ]
    assert "Ran 1 test" in ran[-1][1]
