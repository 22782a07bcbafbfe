"""Writes to a vote table as an application does that does not know of hotcount, until it is killed.

    python -m tests.support.outside_writer django|sqlalchemy|psql URL FOLDER SCHEMA SEED

FOLDER (of the socket) and SCHEMA are for psql and Django, URL is for SQLAlchemy. Each writer
has users of its own, so that two do not insert the same row.
"""

import contextlib
import itertools
import os
import random
import sys
from urllib.parse import unquote

ITEMS = range(1, 6)


def draws(seed: int) -> tuple[random.Random, range]:
    return random.Random(seed), range(1000 * seed, 1000 * seed + 200)


def run_sqlalchemy(url: str, seed: int) -> None:
    import sqlalchemy as sa
    from sqlalchemy import orm

    class Base(orm.DeclarativeBase):
        pass

    class Vote(Base):
        __tablename__ = "vote"
        item_id = orm.mapped_column(sa.BigInteger, primary_key=True)
        user_id = orm.mapped_column(sa.BigInteger, primary_key=True)
        val = orm.mapped_column(sa.BigInteger)

    engine = sa.create_engine(url)
    drawn, users = draws(seed)
    while True:
        # With naive two transactions of several items may wait for each other's rows.
        with contextlib.suppress(sa.exc.OperationalError), orm.Session(engine) as session:
            for _ in range(drawn.randint(1, 3)):
                key = (drawn.choice(ITEMS), drawn.choice(users))
                vote = session.get(Vote, key)
                if vote is None:
                    session.add(Vote(item_id=key[0], user_id=key[1], val=drawn.randint(0, 3)))
                elif drawn.random() < 0.5:
                    session.delete(vote)
                else:
                    vote.val = drawn.randint(-2, 3)
            session.rollback() if drawn.random() < 0.1 else session.commit()


def run_django(folder: str, schema: str, seed: int) -> None:
    import django
    from django.conf import settings

    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": folder,
                "NAME": "postgres",
                "USER": "hotcount",
                "OPTIONS": {"options": f"-c search_path={schema}"},
            }
        }
    )
    django.setup()
    from django.db import OperationalError, models, transaction

    class Vote(models.Model):  # type: ignore[misc]
        pk = models.CompositePrimaryKey("item_id", "user_id")
        item_id = models.BigIntegerField()
        user_id = models.BigIntegerField()
        val = models.BigIntegerField()

        class Meta:
            app_label = "votes"
            db_table = "vote"
            managed = False

    drawn, users = draws(seed)
    while True:
        with contextlib.suppress(OperationalError), transaction.atomic():
            key = {"item_id": drawn.choice(ITEMS), "user_id": drawn.choice(users)}
            _, created = Vote.objects.get_or_create(**key, defaults={"val": drawn.randint(0, 3)})
            if not created and drawn.random() < 0.5:
                Vote.objects.filter(**key).delete()
            elif drawn.random() < 0.3:
                Vote.objects.filter(user_id__in=users[:20]).update(val=drawn.randint(-2, 3))


def run_psql(folder: str, schema: str, seed: int) -> None:
    drawn, users = draws(seed)
    script = os.path.join(folder, f"outside-{seed}.sql")
    with open(script, "w") as out:
        for _ in itertools.repeat(None, 50_000):
            item, user = drawn.choice(ITEMS), drawn.choice(users)
            out.write(
                drawn.choice(
                    [
                        f"INSERT INTO vote (item_id, user_id, val) VALUES ({item}, {user},"
                        f" {drawn.randint(0, 3)}) ON CONFLICT (item_id, user_id) DO UPDATE"
                        " SET val = excluded.val;\n",
                        f"DELETE FROM vote WHERE user_id = {user};\n",
                        f"BEGIN; UPDATE vote SET val = val + 1 WHERE user_id = {user}; ROLLBACK;\n",
                    ]
                )
            )
    os.environ["PGOPTIONS"] = f"-c search_path={schema}"
    os.execvp("psql", ["psql", "-qXh", folder, "-U", "hotcount", "-f", script, "postgres"])


def main() -> None:
    kind, url, folder, schema, seed = sys.argv[1:]
    if kind == "sqlalchemy":
        run_sqlalchemy(unquote(url), int(seed))
    elif kind == "django":
        run_django(folder, schema, int(seed))
    else:
        run_psql(folder, schema, int(seed))


if __name__ == "__main__":
    main()
