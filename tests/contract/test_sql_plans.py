"""The plans of the hot statements: nodes, and the tables and indexes that they read.

sql_plans.txt has them, so that a changed plan shows as a diff. HOTCOUNT_WRITE_PLANS=1 writes it.
"""

import os
from pathlib import Path

import pytest

from tests.support.sql_names import GIVEN, statements_of
from tests.support.sql_sessions import Session

PLANS = Path(__file__).with_name("sql_plans.txt")

# Database, file, statement, and the flags that are set.
HOT = (
    ("postgresql", "dialects/postgres/sql/votes.sql", "single", "foreign_key"),
    ("postgresql", "dialects/postgres/sql/votes.sql", "single", "foreign_key in_slot"),
    ("postgresql", "dialects/postgres/sql/votes.sql", "batch", ""),
    ("postgresql", "dialects/postgres/sql/votes.sql", "batch", "cached"),
    ("postgresql", "dialects/postgres/sql/votes.sql", "batch", "fenced"),
    ("postgresql", "dialects/postgres/sql/counts.sql", "counts", ""),
    ("postgresql", "dialects/postgres/sql/counts.sql", "counts_of_array", ""),
    ("postgresql", "dialects/postgres/sql/counts.sql", "votes_of_array", ""),
    ("mariadb", "votes/sql/reads.sql", "count_of_item", "in_journal"),
    ("mariadb", "votes/sql/reads.sql", "vote_of_user", ""),
    ("sqlite", "votes/sql/reads.sql", "count_of_item", "in_item"),
    ("sqlite", "votes/sql/reads.sql", "vote_of_user", ""),
)


def plan(sessions: dict[str, Session], database: str, file: str, name: str, flags: str) -> str:
    texts = statements_of(database, file).texts(name, GIVEN.get((file, name), {}))
    for text, given in texts:
        if {flag for flag, value in given.items() if value} == set(flags.split()):
            lines = sessions[database].plan(text)
            return "\n".join([f"{database} {file} {name} {flags}".rstrip(), *lines, ""])
    raise LookupError(f"{file}: {name} has no text with the flags {flags}")


@pytest.mark.server
def test_the_plans_of_hot_statements_are_those_of_a_file(sql_sessions: dict[str, Session]) -> None:
    plans = "\n".join(plan(sql_sessions, *hot) for hot in HOT)
    if os.environ.get("HOTCOUNT_WRITE_PLANS"):
        PLANS.write_text(plans)
    assert plans.splitlines() == PLANS.read_text().splitlines()
