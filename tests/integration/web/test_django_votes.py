"""The Django app for votes, by real commands of a project over real databases."""

from __future__ import annotations

import json
import signal
from typing import Any

import hotcount
import pytest

from tests.support.django_site import NAMES, POSTGRES, VOTE, Site
from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import RedisServer


@pytest.mark.parametrize(
    ("site", "parallel"),
    [
        ("sqlite", "2"),
        pytest.param("postgresql", "1", marks=pytest.mark.server),
        pytest.param("postgresql", "2", marks=pytest.mark.server),
        # A clone of a test database needs mysqldump there.
        pytest.param("mariadb", "1", marks=pytest.mark.server),
    ],
    indirect=["site"],
)
def test_the_tests_of_a_project(site: Site, parallel: str) -> None:
    site.manage("makemigrations", "-v0", "blog")
    done = site.run("test", "--parallel", parallel, "tests.support.blog.cases")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ran 18 tests" in done.stderr


def test_ids_that_are_uuids(site: Site) -> None:
    site.environment["BLOG_UUID"] = "1"
    vote = """
assert Post.votes.cast(post.pk, anna.pk).counted
assert Post.objects.with_counts().voted_by(anna).get().exact_count == 1
PostVote.objects.all().delete()
assert Post.votes.count(post.pk) == 0
"""
    if not site.url.startswith(("sqlite:", "mysql:")):
        return site.migrate(VOTE + vote)
    site.manage("makemigrations", "-v0", "blog")
    refused = site.run("migrate", "-v0")
    assert refused.returncode == 1
    assert "blog.PostVote.post is a UUID, which Django keeps without dashes" in refused.stderr


def test_a_forked_child_votes(site: Site) -> None:
    child = """
import itertools, os
from django.db import connections
if connection.vendor == "postgresql":  # As with tokens of IAM, which are passwords.
    backend = type(connections["default"])
    passwords, real = itertools.count(), backend.get_connection_params
    backend.get_connection_params = lambda wrapper: real(wrapper) | {
        "password": str(next(passwords))
    }
assert Post.votes.cast(post.pk, anna.pk).counted
child = os.fork()
if child == 0:
    os._exit(Post.votes.retract(post.pk, anna.pk).counted)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert Post.votes is Post.votes and Post.votes.count(post.pk) == 0
"""
    site.migrate(VOTE + child)


@pytest.mark.parametrize(
    "site", [pytest.param("mariadb", marks=pytest.mark.server)], indirect=["site"]
)
@pytest.mark.mariadb_only("the account's plugin")
def test_a_password_with_special_characters(site: Site, mariadb_server: MariaDbServer) -> None:
    password = "a:b/c?d#e@f%41 g&h="
    mariadb_server.execute(f"CREATE USER django@localhost IDENTIFIED BY '{password}'")
    mariadb_server.execute(f"GRANT ALL ON {site.database['NAME']}.* TO django@localhost")
    site.database |= {"USER": "django", "PASSWORD": password}
    site.migrate(VOTE + "assert Post.votes.cast(post.pk, anna.pk).counted")


URLS: list[tuple[dict[str, Any], str]] = [
    ({"ENGINE": "postgresql", "NAME": "app"}, "postgresql:///app"),
    (
        {"ENGINE": "postgresql", "NAME": "a/b", "HOST": "db", "PORT": "6432", "USER": "u@x"}
        | {"PASSWORD": "p:/?#%", "OPTIONS": {"sslmode": "require", "pool": True}},
        "postgresql://u%40x:p%3A%2F%3F%23%25@/a%2Fb?sslmode=require&host=db&port=6432",
    ),
    (
        {"ENGINE": "postgresql", "NAME": "app", "HOST": "/run/pg"}
        | {"OPTIONS": {"options": "-c search_path=x", "assume_role": "r"}},
        "postgresql:///app?options=-c%20search_path%3Dx%20-c%20role%3Dr&host=%2Frun%2Fpg",
    ),
    (
        {"ENGINE": "mysql", "NAME": "app", "HOST": "db", "PORT": 3307, "USER": "u"}
        | {"OPTIONS": {"charset": "utf8mb4", "ssl": {"ca": "/ca.pem"}}},
        "mysql://u@db:3307/app?ssl_ca=%2Fca.pem",
    ),
    (
        {"ENGINE": "mysql", "NAME": "app", "OPTIONS": {"unix_socket": "/run/my.sock"}},
        "mysql:///app?unix_socket=%2Frun%2Fmy.sock",
    ),
    ({"ENGINE": "mysql", "NAME": "app", "HOST": "::1", "PORT": 1}, "mysql://[::1]:1/app"),
    ({"ENGINE": "sqlite3", "NAME": "/var/my app?.db"}, "sqlite:////var/my%20app%3F.db"),
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"ENGINE": "postgresql", "NAME": "", "OPTIONS": {"service": "x"}}, "has 'service'"),
    ({"ENGINE": "mysql", "NAME": "a", "OPTIONS": {"read_default_file": "/f"}}, "has 'read_default"),
    ({"ENGINE": "dummy"}, "backend 'django.db.backends.dummy'; hotcount speaks to PostgreSQL"),
    ({"ENGINE": "sqlite3", "NAME": ":memory:"}, "['TEST'] = {'NAME': BASE_DIR / 'test.sqlite3'}"),
    ({"ENGINE": "sqlite3", "NAME": "file:x?mode=ro"}, "give the path of the file"),
]


def test_urls_of_databases(lite: Site) -> None:
    lite.environment["BLOG_DATABASES"] = json.dumps(
        {
            str(i): {**database, "ENGINE": f"django.db.backends.{database['ENGINE']}"}
            for i, (database, _) in enumerate([*URLS, *REFUSED])
        }
    )
    answers = lite.manage(
        program="""
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from hotcount.integrations.django.models import database_url
for alias in settings.DATABASES:
    if alias != "default":
        try:
            print(database_url(alias))
        except ImproperlyConfigured as error:
            print(error)
"""
    ).splitlines()
    assert answers[: len(URLS)] == [url for _, url in URLS]
    for answer, (_, words) in zip(answers[len(URLS) :], REFUSED, strict=True):
        assert words in answer


def test_a_database_in_memory_counts_what_the_orm_writes(lite: Site) -> None:
    lite.database["TEST"] = {}
    lite.manage("makemigrations", "-v0", "blog")
    lite.manage("test", "tests.support.blog.cases.InATransaction")
    refused = lite.run("test", "tests.support.blog.cases.Votes.test_a_like_button")
    assert "BASE_DIR / 'test.sqlite3'" in refused.stderr


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"BLOG_VOTES": '{"STRATEGI": "naive"}'}, "HOTCOUNT_VOTES has 'STRATEGI'"),
        ({"BLOG_VOTES": '{"STRATEGY": "batch"}'}, "it takes 'naive', 'slotted'"),
        ({"BLOG_VOTES": '{"OPTIONS": {"max_bach": 9}}'}, "has 'max_bach'; it takes fold_interval"),
        ({"BLOG_VOTES": "null"}, "HOTCOUNT_VOTES is None"),
        ({"BLOG_WITHOUT_HOTCOUNT": "1"}, "INSTALLED_APPS lacks"),
        ({"BLOG_NOTED": "1"}, "blog.PostVote.noted has to have a value"),
        ({"BLOG_AUTO_FIELD": "django.db.models.AutoField"}, "hotcount.W001"),
        ({"BLOG_LIKES": "voted"}, "hotcount.E001"),
        ({"BLOG_LIKES": "one vote"}, "hotcount.E003"),
        ({"BLOG_RELATED": "votes"}, "hotcount.E004"),
    ],
)
def test_check_names_what_is_wrong(lite: Site, environment: dict[str, str], words: str) -> None:
    lite.environment |= environment
    done = lite.run("check", "--fail-level", "WARNING")
    assert done.returncode == 1
    assert words in done.stderr


@pytest.mark.parametrize("site", [POSTGRES], indirect=True)
def test_commands_end_with_the_codes_of_hotcount(site: Site, own_redis: RedisServer) -> None:
    site.environment["BLOG_VOTES"] = json.dumps({"CACHE": own_redis.url})
    site.migrate(VOTE + "Post.votes.cast(post.pk, anna.pk); Post.votes.flush()")
    assert json.loads(site.manage("hotcount_reconcile", "blog.PostVote", "--json"))["items"] == 1
    with hotcount.Votes(site.url, **NAMES) as votes:
        votes.create_tables(outside_writes="none")
    site.manage(program="from tests.support.blog.models import *\nPostVote.objects.update(val=4)")
    dry = site.run("hotcount_reconcile", "--dry-run")
    assert (dry.returncode, dry.stdout.splitlines()[0]) == (1, "1: counted 1, votes 4")
    assert site.run("hotcount_reconcile").returncode == 0

    with own_redis.redis() as redis:
        redis.execute("ZADD", "feed:1", 1, "a")
    assert "feed:1" in site.manage("hotcount_sweep", "--match", "feed:*", "--delete")
    said = site.run("hotcount_doctor")
    assert "PostgreSQL" in said.stdout
    assert "Redis" in said.stdout
    assert said.returncode in (0, 1)


@pytest.mark.parametrize("site", [POSTGRES], indirect=True)
def test_sync_runs_until_sigterm(site: Site) -> None:
    site.migrate(VOTE + "PostVote.objects.create(post=post, user=anna)")
    process = site.start("hotcount_sync", "blog.PostVote", "--interval", "0.05")
    try:
        assert process.stderr is not None
        assert "until interrupted" in process.stderr.readline()
        site.manage(
            program="""
import time
from tests.support.blog.models import Post
deadline = time.monotonic() + 30
while Post.objects.get().vote_count != 1:
    assert time.monotonic() < deadline
    time.sleep(0.05)
"""
        )
        process.send_signal(signal.SIGTERM)
        assert "rounds" in process.communicate(timeout=30)[0]
        assert process.returncode == 0
    finally:
        process.kill()
