"""A Django application's own votes under hotcount-load, counted in two ways.

    hotcount-load run -s 'exec:python loadtest/examples/django_driver.py racy' \\
        --managed postgres --items 20 -w 8 -d 3s
    hotcount-load run -s 'exec:python loadtest/examples/django_driver.py expression' \\
        --managed postgres --items 20 -w 8 -d 3s

racy reads the item, adds one in Python and saves it: two voters read the same count, and one vote
is missing from it. The audit finds how many (exit code 1). expression lets the database add, with
F(), and passes.

Both write the vote first, with get_or_create(), and count it in a statement of its own, as a view
does without ATOMIC_REQUESTS. So a vote whose process dies between the two stays uncounted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import django
from django.conf import settings
from django.db import connection, models
from django.db.models import F
from hotcount import load


def database(url: str) -> dict[str, object]:
    """The URL as Django's DATABASES writes it."""
    if url.startswith("sqlite:///"):
        # A transaction that begins as a reader fails where another one writes: it cannot wait.
        options = {"init_command": "PRAGMA journal_mode = WAL", "transaction_mode": "IMMEDIATE"}
        name = url.removeprefix("sqlite:///")
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "OPTIONS": options}
    address = urlsplit(url)
    query = {name: values[-1] for name, values in parse_qs(address.query).items()}
    login = {
        "NAME": address.path[1:],
        "USER": unquote(address.username or ""),
        "PASSWORD": unquote(address.password or ""),
        "PORT": str(address.port or ""),
    }
    if address.scheme == "postgresql":
        host = query.pop("host", address.hostname or "")
        engine = "django.db.backends.postgresql"
        return login | {"ENGINE": engine, "HOST": host, "OPTIONS": query}
    return login | on_mariadb(address, query)


def on_mariadb(address: SplitResult, query: dict[str, str]) -> dict[str, object]:
    import pymysql

    # Django's own choice is mysqlclient, which has to be compiled.
    pymysql.install_as_MySQLdb()
    host = query.get("unix_socket", address.hostname or "")
    return {"ENGINE": "django.db.backends.mysql", "HOST": host}


if not settings.configured:
    url = os.environ.get("HOTCOUNT_LOAD_DB")
    if not url:
        sys.exit("start this by hotcount-load: its head says how")
    settings.configure(
        DATABASES={"default": database(url)}, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField"
    )
    django.setup()


class Item(models.Model):
    vote_count = models.BigIntegerField(default=0)

    class Meta:
        app_label = "shop"


class Vote(models.Model):
    item = models.ForeignKey(Item, on_delete=models.CASCADE)
    user = models.BigIntegerField()
    value = models.SmallIntegerField()

    class Meta:
        app_label = "shop"
        constraints = (models.UniqueConstraint(fields=["item", "user"], name="shop_one_vote"),)


def racy(item: int, change: int, between: Callable[[], object]) -> None:
    mine = Item.objects.get(pk=item)
    between()
    mine.vote_count += change
    mine.save(update_fields=["vote_count"])


def expression(item: int, change: int, between: Callable[[], object]) -> None:
    between()
    Item.objects.filter(pk=item).update(vote_count=F("vote_count") + change)


WAYS = {"racy": racy, "expression": expression}


def setup(items: int) -> None:
    tables = connection.introspection.table_names()
    with connection.schema_editor() as editor:
        for model in (Vote, Item):
            if model._meta.db_table in tables:
                editor.delete_model(model)
        for model in (Item, Vote):
            editor.create_model(model)
    Item.objects.bulk_create([Item(pk=item) for item in range(1, items + 1)], batch_size=1000)


def write_vote(item: int, user: int, value: int) -> bool:
    """Whether it changed the vote: a repeat must not count again."""
    if value:
        first = {"value": value}
        _, created = Vote.objects.get_or_create(item_id=item, user=user, defaults=first)
        if created:
            return True
    mine = Vote.objects.filter(item=item, user=user).exclude(value=value)
    return bool(mine.update(value=value))


def read(item: int) -> int:
    return Item.objects.values_list("vote_count", flat=True).get(pk=item)


def drive(way: str, between: Callable[[], object] = lambda: None) -> None:
    """`between` is called between reading a count and writing it."""
    if way not in WAYS:
        sys.exit(f"{way!r} is no way to count; it takes racy or expression")
    count = WAYS[way]

    def cast(item: int, user: int, value: int) -> bool:
        changed = write_vote(item, user, value)
        if changed:
            count(item, 1 if value else -1, between)
        return changed

    load.driver(
        setup=setup,
        cast=cast,
        read=read,
        rows=lambda: Vote.objects.values_list("item", "user", "value"),
        counts=lambda: Item.objects.values_list("pk", "vote_count"),
        threads=8,
        place=f"{connection.vendor} through Django {django.get_version()}",
        acknowledged="the vote's row and the item's count are committed, each by itself",
        # A repeat of a vote may return before the first one is counted.
        exact=False,
    )


if __name__ == "__main__":
    drive(sys.argv[1] if len(sys.argv) > 1 else "racy")
