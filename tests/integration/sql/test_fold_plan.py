"""The plan of a fold on PostgreSQL, as the server itself writes it down."""

from __future__ import annotations

import re
from collections.abc import Iterator

import hotcount
import pytest

from tests.support.servers import PostgresServer

ITEMS = 400


@pytest.fixture
def explaining() -> Iterator[PostgresServer]:
    """Writes the plan of every statement into its log, with the rows that each step really saw."""
    with PostgresServer().started(
        "shared_preload_libraries=auto_explain",
        "auto_explain.log_min_duration=0",
        "auto_explain.log_analyze=on",
    ) as server:
        yield server


@pytest.mark.server
def test_a_fold_of_a_vacuumed_journal_compares_no_item_with_each_other(
    explaining: PostgresServer,
) -> None:
    """The statistics then say that the journal is empty."""
    database = explaining.create_database()
    items = list(range(1, ITEMS + 1))
    with hotcount.Votes(database.url, fold_interval=3600) as votes:
        votes.create_tables()
        votes.add_items(items)
        for user in (1, 2, 3):
            database.psql("VACUUM (TRUNCATE FALSE) vote_journal")
            votes.cast_many(items, [user] * ITEMS)
            votes.flush()
        assert database.psql("SELECT DISTINCT vote_count FROM item") == "3"
        log = (explaining.folder / "server.log").read_text()
    folds = [plan for plan in log.split("LOG:  duration: ") if "CTE hc_moved" in plan]
    whole = [plan for plan in folds if f"rows={ITEMS} " in plan]
    assert len(whole) == 3
    for plan in whole:
        dropped = [int(rows) for rows in re.findall(r"Rows Removed by Join Filter: (\d+)", plan)]
        assert sum(dropped) <= 10 * ITEMS, plan
