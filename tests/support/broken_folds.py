"""What makes folds of the votes' journal fail on real servers, and what mends them."""

from dataclasses import dataclass

from tests.support.journal_side import JournalSide

# Beyond what a SMALLINT holds.
MANY = 40_000


@dataclass(frozen=True)
class Broken:
    """Statements by dialect; {voter} is the account of JournalSide.voter()."""

    name: str
    breaks: dict[str, tuple[str, ...]]
    mends: dict[str, str]
    says: str
    """A part of the server's words, in lower case."""
    by_counts: bool = False
    """Only folds of counts of MANY fail."""

    def begin(self, side: JournalSide, voter: str) -> None:
        side.run(*(each.format(voter=voter) for each in self.breaks[side.dialect]))

    def end(self, side: JournalSide, voter: str) -> None:
        side.run(self.mends[side.dialect].format(voter=voter))


def _on_both(text: str) -> dict[str, str]:
    return {"postgresql": text, "mysql": text}


def _lacks(right: str, table: str) -> Broken:
    revoke = f"REVOKE {right} ON {table} FROM {{voter}}"
    return Broken(
        f"no {right} on {table}",
        {"postgresql": (revoke,), "mysql": (revoke,)},
        _on_both(f"GRANT {right} ON {table} TO {{voter}}"),
        table,
    )


BROKEN = [
    Broken(
        "a trigger",
        {
            "postgresql": (
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                " RAISE EXCEPTION 'no counts today'; END $$",
                "CREATE TRIGGER refuse BEFORE UPDATE ON item"
                " FOR EACH ROW EXECUTE FUNCTION refuse()",
            ),
            "mysql": (
                "CREATE TRIGGER refuse BEFORE UPDATE ON item FOR EACH ROW"
                " SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no counts today'",
            ),
        },
        {"postgresql": "DROP TRIGGER refuse ON item", "mysql": "DROP TRIGGER refuse"},
        "no counts today",
    ),
    _lacks("DELETE", "vote_journal"),
    _lacks("INSERT", "vote_cell"),
    Broken(
        "a narrow column",
        {
            "postgresql": (
                "DROP VIEW vote_count",  # It reads the column.
                "ALTER TABLE item ALTER vote_count TYPE smallint",
            ),
            "mysql": ("ALTER TABLE item MODIFY vote_count SMALLINT NOT NULL DEFAULT 0",),
        },
        {
            "postgresql": "ALTER TABLE item ALTER vote_count TYPE bigint",
            "mysql": "ALTER TABLE item MODIFY vote_count BIGINT NOT NULL DEFAULT 0",
        },
        "out of range",
        by_counts=True,
    ),
    Broken(
        "a table that is gone",
        {
            "postgresql": ("ALTER TABLE vote_cell RENAME TO gone",),
            "mysql": ("ALTER TABLE vote_cell RENAME TO gone",),
        },
        _on_both("ALTER TABLE gone RENAME TO vote_cell"),
        "vote_cell",
    ),
]
