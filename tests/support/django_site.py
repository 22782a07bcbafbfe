"""Commands of the Django project in tests/support/blog, over one database."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import PostgresServer

ROOT = Path(__file__).parents[2]
POSTGRES = pytest.param("postgresql", id="postgresql", marks=pytest.mark.server)
VOTE = """
from django.contrib.auth.models import User
from django.db import connection
from tests.support.blog.models import Post, PostVote
anna, post = User.objects.create(username="anna"), Post.objects.create(title="first")
"""
# Where `hotcount` finds the votes of the project.
NAMES: dict[str, Any] = {
    "item_table": "blog_post",
    "vote_table": "blog_postvote",
    "vote_item": "post_id",
    "foreign_key": False,
}


@dataclass
class Site:
    """The project; what it writes is in a folder of its own."""

    folder: Path
    database: dict[str, Any]
    url: str
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        migrations = self.folder / "blog_migrations"
        migrations.mkdir()
        (migrations / "__init__.py").touch()

    @property
    def vendor(self) -> str:
        return str(self.database["ENGINE"]).rpartition(".")[2]

    def run(self, *command: str, program: str = "") -> subprocess.CompletedProcess[str]:
        """`manage.py COMMAND`, or a program of Python with the project set up."""
        process = self.start(*command, program=program)
        out, error = process.communicate(timeout=110)
        return subprocess.CompletedProcess(command, process.returncode, out, error)

    def start(self, *command: str, program: str = "") -> subprocess.Popen[str]:
        set_up = "import django; django.setup()\n"
        of_python = ["-c", set_up + program] if program else ["-m", "django", *command]
        return subprocess.Popen(
            [sys.executable, "-W", "error", *of_python],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ
            | {
                "DJANGO_SETTINGS_MODULE": "tests.support.blog.settings",
                "PYTHONPATH": f"{ROOT}:{self.folder}",
                # Models that a test rewrites within a second have the time of the bytecode before.
                "PYTHONDONTWRITEBYTECODE": "1",
                "BLOG_DATABASE": json.dumps(self.database),
                **self.environment,
            },
        )

    def manage(self, *command: str, program: str = "") -> str:
        """What it prints. It must end well."""
        done = self.run(*command, program=program)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def migrate(self, program: str = "") -> None:
        """makemigrations and migrate, and the program in the same process."""
        commands = (
            "import importlib\n"
            "from django.core.management import call_command\n"
            "call_command('makemigrations', 'blog', verbosity=0)\n"
            "importlib.invalidate_caches()\n"
            "call_command('migrate', verbosity=0)\n"
        )
        self.manage(program=commands + program)


def new_site(request: pytest.FixtureRequest, backend: str, folder: Path) -> Site:
    """Over an empty database; the names of its test databases are its own."""
    name = f"hc_{folder.name[-20:].replace('-', '_')}_{os.getpid()}"
    if backend == "sqlite":
        path = folder / "site.db"
        files = {"NAME": str(path), "TEST": {"NAME": str(folder / "test.db")}}
        return Site(folder, {"ENGINE": "django.db.backends.sqlite3", **files}, f"sqlite:///{path}")
    if backend == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        server.psql(f'CREATE DATABASE "{name}"')
        login = {"HOST": str(server.folder), "NAME": name, "USER": server.superuser}
        engine = {"ENGINE": "django.db.backends.postgresql"}
        return Site(folder, engine | login, server.url(quote(name)))
    maria: MariaDbServer = request.getfixturevalue("mariadb_server")
    name = request.getfixturevalue("mariadb_database")
    database: dict[str, Any] = {
        "ENGINE": "django.db.backends.mysql",
        "HOST": str(maria.socket),
        "NAME": name,
        "USER": "root",
        "TEST": {"CHARSET": "utf8mb4"},
    }
    return Site(folder, database, maria.url(name))
