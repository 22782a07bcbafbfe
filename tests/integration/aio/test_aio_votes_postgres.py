"""Votes for event loops where a server holds rows, not files: what each caller may be told."""

from __future__ import annotations

import asyncio

import hotcount
import psycopg
import pytest
from hotcount import aio

from tests.support.servers import PostgresDatabase


async def test_a_caller_who_leaves_while_a_row_is_locked_has_nothing_applied(
    postgres_database: PostgresDatabase,
) -> None:
    votes = aio.Votes(aio.Database(postgres_database.url, timeout=20))
    await votes.create_tables()
    await votes.add_items([1])
    await votes.cast(1, 1000)
    with psycopg.connect(postgres_database.url) as other:
        other.execute("SELECT * FROM item WHERE id = 1 FOR UPDATE")
        patient = [asyncio.ensure_future(votes.cast(1, user)) for user in range(10)]
        hurried = [
            asyncio.ensure_future(votes.cast(1, user, timeout=0.3)) for user in range(10, 20)
        ]
        outcomes = await asyncio.gather(*hurried, return_exceptions=True)
        assert {type(each) for each in outcomes} == {hotcount.DeadlineError}
        assert not any(call.done() for call in patient)
        other.rollback()
    assert all(cast.changed for cast in await asyncio.gather(*patient))
    assert int(await votes.count(1)) == 11
    assert await votes.reconcile() == []


async def test_callers_that_wait_are_not_failed_by_the_deadline_of_who_leads_them(
    postgres_database: PostgresDatabase,
) -> None:
    # The leader waits for company, so that they share its transaction.
    database = hotcount.Database(postgres_database.url, timeout=20)
    votes = hotcount.Votes(database, max_delay=0.4)
    votes.create_tables()
    votes.add_items([1])
    with psycopg.connect(postgres_database.url) as other:
        other.execute("SELECT * FROM item WHERE id = 1 FOR UPDATE")
        leads = asyncio.ensure_future(asyncio.to_thread(votes.cast, 1, 0, timeout=1))
        await asyncio.sleep(0.1)
        follow = [asyncio.ensure_future(asyncio.to_thread(votes.cast, 1, user)) for user in (1, 2)]
        with pytest.raises(hotcount.DeadlineError):
            await leads
        other.rollback()
    for call in follow:
        assert (await call).value == 1
    assert int(votes.count(1)) == 2
