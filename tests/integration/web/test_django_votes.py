"""The Django app for votes, by real commands of a project over real databases."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import hotcount
import pytest

from tests.support.commands import run
from tests.support.django_site import Site, new_site
from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import RedisServer
from tests.support.sqlalchemy_side import BACKENDS

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


@pytest.fixture(params=BACKENDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return new_site(request, request.param, tmp_path)


@pytest.fixture
def lite(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """On SQLite, where nothing depends on the database."""
    return new_site(request, "sqlite", tmp_path)


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


def test_migrations_make_what_hotcount_schema_prints(site: Site) -> None:
    site.manage("makemigrations", "-v0", "blog")
    site.manage("makemigrations", "--check", "blog")
    made = site.manage("sqlmigrate", "blog", "0001")
    printed = run(
        *("schema", "--dialect", site.url.partition(":")[0], "--no-foreign-key"),
        *("--item-table=blog_post", "--vote-table=blog_postvote", "--vote-item=post_id"),
    )
    statements = printed.stdout.partition("-- SlottedCounter")[0].strip().splitlines()[1:]
    assert len(statements) > 6
    for statement in statements:
        # On PostgreSQL and SQLite views are made after the last migration.
        assert statement.removesuffix(";") in made or (
            site.vendor != "mysql" and statement.startswith(("CREATE VIEW", "CREATE OR REPLACE VI"))
        )
    site.manage("migrate", "-v0")
    with hotcount.Votes(site.url, **NAMES) as votes:
        assert votes.migration(outside_writes="count") == ""


# A `migrate` that failed has left the tables so.
WITHOUT_TRIGGERS = """
from django.contrib.auth.models import User
from django.db import connection
from tests.support.blog.models import PostVote
with connection.cursor() as cursor:
    cursor.execute("DROP VIEW blog_postvote_live, blog_postvote_count")
    cursor.execute("DROP FUNCTION blog_postvote_hotcount() CASCADE")
PostVote.objects.create(post_id=1, user=User.objects.create(username="eve"))
"""


def test_later_migrations_keep_counts_and_triggers(
    site: Site, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Columns come, and ids get 64 bits, which are those of hotcount's views; in an empty database
    all migrations run at once."""
    site.environment["BLOG_AUTO_FIELD"] = "django.db.models.AutoField"
    site.migrate(VOTE + "Post.votes.cast(post.pk, anna.pk)")
    first = 1
    if site.vendor == "postgresql":
        site.manage(program=WITHOUT_TRIGGERS)
        first = 2
    del site.environment["BLOG_AUTO_FIELD"]
    site.environment["BLOG_CHANGED"] = "1"
    ben = VOTE.replace("anna", "ben") + "PostVote.objects.create(post=post, user=ben)"
    site.migrate(ben + f"\nassert (Post.votes.count(1), Post.votes.count(2)) == ({first}, 1)")
    with hotcount.Votes(site.url, **NAMES) as votes:
        assert votes.migration(outside_writes="count") == ""
        assert votes.reconcile() == []
    if site.vendor == "mysql":
        return  # One database a test; its ALTER TABLE does not look at views.
    (tmp_path / "fresh").mkdir()
    fresh = new_site(request, site.vendor.removesuffix("3"), tmp_path / "fresh")
    shutil.copytree(
        site.folder / "blog_migrations", fresh.folder / "blog_migrations", dirs_exist_ok=True
    )
    fresh.manage("migrate", "-v0")
    with hotcount.Votes(fresh.url, **NAMES) as votes:
        assert votes.migration(outside_writes="count") == ""


SHOP = """
from django.conf import settings
from django.db import models
from hotcount.integrations.django.models import OneVote, VotedMixin, VoteMixin

class Post(VotedMixin): pass

class PostVote(VoteMixin):
    post = models.ForeignKey(Post, on_delete=models.CASCADE)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")

    class Meta:
        constraints = [OneVote(fields=["post", "user"], name="one_vote")]
"""
FIRST, SECOND = ("Post", "PostVote", "post", "one_vote"), ("Entry", "Like", "entry", "one_like")
RENAMED = """
from django.db import migrations
from hotcount.integrations.django.models import OneVote

class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [
        migrations.RemoveConstraint("postvote", "one_vote"),
        migrations.RenameModel("Post", "Entry"),
        %s
        migrations.RenameField("%s", "post", "entry"),
        migrations.AddConstraint("%s", OneVote(fields=["entry", "user"], name="one_like")),
        %s
    ]
"""
LIKE = "migrations.RenameModel('PostVote', 'Like'),"
BESIDE_THE_STATE = f"migrations.SeparateDatabaseAndState([{LIKE}], [{LIKE}]),"
BAD = """
from django.db import migrations

class Migration(migrations.Migration):
    dependencies = [("shop", "%s")]
    operations = [migrations.RunSQL("nonsense")]
"""

# A vote of the ORM, and one of hotcount after create_tables(), which its error advises.
IN_BETWEEN = """
from django.contrib.auth.models import User
from shop.models import Entry, Like
Like.objects.create(entry_id=1, user=User.objects.create(username="in between"))
Entry.votes.create_tables(existing_counts="recount")
Entry.votes.cast(1, None, op_id="in between")
"""


def new_shop(site: Site, models: str, name: str = "shop") -> Path:
    """An app with these models, which the project has from now on."""
    app = site.folder / name
    (app / "migrations").mkdir(parents=True)
    (app / "__init__.py").touch()
    (app / "migrations" / "__init__.py").touch()
    (app / "models.py").write_text(models)
    site.environment["BLOG_APPS"] = f"{site.environment.get('BLOG_APPS', '')} {name}"
    return app


BIG = "models.BigAutoField(primary_key=True)"
OF_A_PARENT = """
class Page(models.Model):
    id = models.AutoField(primary_key=True)

class Post(VotedMixin, Page): pass
"""
CHANGES_OF_AN_ID = {
    "of a parent": f"migrations.AlterField('page', 'id', {BIG})",
    "of a renamed model": "migrations.RenameModel('Post', 'Entry'),"
    f"migrations.AlterField('entry', 'id', {BIG})",
    "of a renamed field": "migrations.RenameField('post', 'id', 'key'),"
    f"migrations.AlterField('post', 'key', {BIG})",
    "beside the state": "migrations.SeparateDatabaseAndState(["
    f"migrations.AlterField('post', 'id', {BIG})], [migrations.AlterField('post', 'id', {BIG})])",
}


@pytest.mark.parametrize("site", [POSTGRES], indirect=True)
def test_an_id_changes_its_type_in_each_way_that_migrations_have(site: Site) -> None:
    """All of them in one database, with an app each."""
    apps = [f"shop{i}" for i in range(len(CHANGES_OF_AN_ID))]
    changes = dict(zip(apps, CHANGES_OF_AN_ID.values(), strict=True))
    plain = "class Post(VotedMixin):\n    id = models.AutoField(primary_key=True)\n"
    for app, change in changes.items():
        base = OF_A_PARENT if "'page'" in change else plain
        models = SHOP.replace("class Post(VotedMixin): pass\n", base)
        new_shop(site, models.replace("one_vote", f"one_vote_{app}"), app)
    site.manage("makemigrations", "-v0", *apps)
    site.manage("migrate", "-v0")
    for app, change in changes.items():
        (site.folder / app / "migrations" / "0002_big.py").write_text(
            "from django.db import migrations, models\n"
            "class Migration(migrations.Migration):\n"
            f"    dependencies = [('{app}', '0001_initial')]\n"
            f"    operations = [{change}]\n"
        )
    wrong = site.manage(
        program=f"""
from django.core.management import call_command
from django.db import Error
for app in {apps}:
    try:
        call_command("migrate", app, verbosity=0)
    except Error as error:
        print(app, error)
"""
    )
    assert wrong == ""


@pytest.mark.parametrize(
    "renaming", [(LIKE, "Like", "Like", ""), ("", *["PostVote"] * 2, BESIDE_THE_STATE)]
)
def test_renamed_models_and_fields_keep_their_votes(
    site: Site, renaming: tuple[str, str, str, str]
) -> None:
    """Votes without a user too, which are in a table of hotcount's alone; there and back.

    The first `migrate` fails after the renaming; the next one completes it.
    """
    app = new_shop(site, "")

    def write_models(names: tuple[str, str, str, str]) -> None:
        text = SHOP.replace("PostVote", names[1]).replace("Post", names[0])
        (app / "models.py").write_text(text.replace("post", names[2]).replace("one_vote", names[3]))

    def goes_on(names: tuple[str, str, str, str], migration: str, before: int) -> None:
        write_models(names)
        site.manage(
            program=f"""
import importlib
from django.core.management import call_command
from django.contrib.auth.models import User
if "{names[0]}{migration}" == "Post":
    call_command("makemigrations", "shop", verbosity=0)
    importlib.invalidate_caches()
    call_command("migrate", verbosity=0)
call_command("migrate", *"shop {migration}".split(), verbosity=0)
if not "{migration}":
    call_command("makemigrations", "shop", check=True, verbosity=0)
from shop.models import {names[0]} as Item, {names[1]} as Vote
item, _ = Item.objects.get_or_create(pk=1)
assert Item.objects.with_counts().get().exact_count == {before}
by_orm, by_hotcount = [User.objects.create(username=f"{names[0]} {{i}}{migration}") for i in (1, 2)]
Vote.objects.create({names[2]}=item, user=by_orm)
Item.votes.cast(1, by_hotcount.pk)
Item.votes.cast(1, None, op_id="{names[0]}{migration}")
assert Item.votes.count(1) == {before} + 3
assert Item.votes.reconcile(dry_run=True) == []
assert Item.votes.migration(outside_writes="count") == ""
"""
        )

    goes_on(FIRST, "", 0)
    (app / "migrations" / "0002_renamed.py").write_text(RENAMED % renaming)
    bad = app / "migrations" / "0003_bad.py"
    bad.write_text(BAD % "0002_renamed")
    assert site.run("migrate", "-v0").returncode == 1
    write_models(SECOND)
    site.manage(program=IN_BETWEEN)
    bad.unlink()
    goes_on(SECOND, "", 5)
    goes_on(FIRST, "0001", 8)


def test_a_migration_that_fails_on_sqlite_and_is_withdrawn(lite: Site) -> None:
    """Its views and triggers are away meanwhile, but not those of others with such names."""
    lite.migrate(VOTE)
    lite.manage(
        program="""
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE shop_meta (n)")
    cursor.execute("CREATE VIEW shop_live AS SELECT n FROM shop_meta")
"""
    )
    bad = lite.folder / "blog_migrations" / "0002_bad.py"
    bad.write_text(
        "from django.db import migrations\n"
        "class Migration(migrations.Migration):\n"
        "    dependencies = [('blog', '0001_initial')]\n"
        "    operations = [migrations.RunSQL('nonsense')]\n"
    )
    assert lite.run("migrate", "-v0").returncode == 1
    models = "from tests.support.blog.models import *\n"
    lite.manage(program=models + "PostVote.objects.create(post_id=1, user_id=1)")
    bad.unlink()
    lite.manage("migrate", "-v0")
    lite.manage(
        program=models + "from django.db import connection\n"
        "assert Post.objects.with_counts().get().exact_count == Post.votes.count(1) == 1\n"
        "assert 'shop_live' in connection.introspection.table_names(include_views=True)"
    )


OTHER_KEY = """
from django.db import migrations
from hotcount.integrations.django.models import OneVote

class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [
        migrations.AddConstraint("postvote", OneVote(fields=["post", "user"], name="one_like")),
        migrations.RemoveConstraint("postvote", "one_vote"),
    ]
"""
KILLED = """
import os, signal
import hotcount
from django.core.management import call_command
setattr(hotcount.Votes, "%s", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
call_command("migrate", verbosity=0)
"""


def test_a_failed_or_killed_migrate_leaves_the_votes_in_between_to_the_next(site: Site) -> None:
    """Their triggers are away. A `flush` in between makes the views, but no triggers."""
    app = new_shop(site, SHOP)
    site.manage("makemigrations", "-v0", "shop")
    site.manage("migrate", "-v0")
    (app / "models.py").write_text(SHOP.replace("one_vote", "one_like"))
    (app / "migrations" / "0002_other.py").write_text(OTHER_KEY)
    bad = app / "migrations" / "0003_bad.py"
    bad.write_text(BAD % "0002_other")
    models = "from django.contrib.auth.models import User\nfrom shop.models import *\n"
    site.manage(
        program=models
        + """
from django.core.management import call_command
from django.db import Error
try:
    call_command("migrate", verbosity=0)
except Error:
    call_command("flush", interactive=False, verbosity=0)
    user, post = User.objects.create(), Post.objects.create()
    PostVote.objects.create(post=post, user=user)
print(post.pk)
"""
    )
    bad.unlink()
    for method in ("create_tables", "reconcile"):
        assert site.run(program=KILLED % method).returncode == -signal.SIGKILL
    site.manage("migrate", "-v0")
    site.manage(
        program=models
        + """
post = Post.objects.with_counts().get()
assert post.exact_count == Post.votes.count(post.pk) == 1
assert Post.votes.reconcile(dry_run=True) == []
assert Post.votes.migration(outside_writes="count") == ""
"""
    )


def test_migrating_back_drops_what_hotcount_made(site: Site) -> None:
    site.migrate(VOTE + "Post.votes.cast(post.pk, anna.pk)")
    tables = """
from django.core.management import call_command
from django.db import connection
call_command("migrate", "blog", "zero", verbosity=0)
print(connection.introspection.table_names(include_views=True))
"""
    left = site.manage(program=tables)
    assert "blog" not in left
    assert "starred" not in left
    site.migrate(VOTE.replace("anna", "ben") + "assert Post.votes.cast(post.pk, ben.pk).counted")


def test_likes_of_before_become_votes(site: Site) -> None:
    """A model of likes, with rows, gets VoteMixin."""
    site.environment["BLOG_LIKES"] = "1"
    site.migrate(VOTE + "PostVote.objects.create(post=post, user=anna)")
    del site.environment["BLOG_LIKES"]
    site.migrate(
        "from tests.support.blog.models import *\n"
        "assert Post.objects.with_counts().get().exact_count == 1\n"
        "assert Post.votes.reconcile() == []"
    )


def test_counts_of_before_are_kept_or_refused(lite: Site) -> None:
    lite.environment["BLOG_LIKES"] = "counted"
    lite.migrate(VOTE + "Post.objects.update(vote_count=40)")
    del lite.environment["BLOG_LIKES"]
    lite.manage("makemigrations", "-v0", "blog")
    refused = lite.run("migrate", "-v0")
    assert refused.returncode == 1
    assert "HOTCOUNT_VOTES['EXISTING_COUNTS']" in refused.stderr
    lite.environment["BLOG_VOTES"] = json.dumps({"EXISTING_COUNTS": "keep"})
    lite.migrate("from tests.support.blog.models import *\nassert Post.votes.count(1) == 40")


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
