"""Ways to count beside the votes' journal that look right, each wrong in a forced order.

The folds are hotcount's; the reader is an application's SQL. The view {vote_table}_count, read in
the same order, is right: that is why the truth of a count is in cells and journal and not in the
item's row.
"""

import pytest

from tests.support.eventually import eventually
from tests.support.journal_play import MariaDbPlay, PostgresPlay
from tests.support.mariadb_server import MariaDbServer
from tests.support.postgres_votes import in_background
from tests.support.servers import PostgresDatabase

FROM_ROW = (
    "SELECT i.vote_count + (SELECT COALESCE(SUM(diff), 0) FROM vote_journal WHERE item = i.id)"
    " FROM item AS i WHERE i.id = 1"
)
FROM_VIEW = "SELECT n FROM vote_count WHERE item = 1"


@pytest.mark.parametrize(("count", "seen"), [(FROM_ROW, 3), (FROM_VIEW, 2)], ids=["row", "view"])
def test_a_count_from_the_item_row_for_update_beside_a_fold_is_counted_twice(
    postgres_database: PostgresDatabase, count: str, seen: int
) -> None:
    play = PostgresPlay(postgres_database)
    admin = play.session()
    # The fold stops where it holds the item's row: in this trigger.
    for statement in (
        "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NEW; END$$",
        "CREATE TRIGGER stop BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION stop()",
    ):
        admin.run(statement)
    admin.commit()
    play.cast(1, 1)
    admin.run("SELECT pg_advisory_xact_lock(4711)")
    fold = play.stopped(play.flush)
    reader = play.session()
    read = in_background(lambda: reader.number(f"{count} FOR UPDATE"))
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    eventually(lambda: play.number(f"{waiting} AND query LIKE '%FOR UPDATE'") == 1)
    admin.rollback()
    # The row is that of after the fold, and the subqueries show what was there before it.
    assert read() == seen
    reader.rollback()
    fold()
    assert play.is_settled(1)
    play.close()


def test_a_count_from_ones_own_update(mariadb_server: MariaDbServer, mariadb_database: str) -> None:
    play = MariaDbPlay(mariadb_server, mariadb_database)
    caller = play.session()
    caller.run("ALTER TABLE item ADD COLUMN title TEXT")
    play.cast(1, 1)
    caller.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    caller.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    play.flush()
    # From here on the snapshot shows the row as it is now, and the journal as it was.
    caller.run("UPDATE item SET title = 'new' WHERE id = 1")
    assert caller.number(FROM_ROW) == 3
    assert caller.number(FROM_VIEW) == 2
    caller.commit()
    assert play.is_settled(1)
    play.close()
