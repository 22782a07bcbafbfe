"""Migrations of the Django app for votes, by real commands of a project over real databases."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import hotcount
import pytest

from tests.support.commands import run
from tests.support.django_site import NAMES, POSTGRES, VOTE, Site, new_site


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
