"""Sample values for the names in braces of the .sql files of cpp/src (sql_files.py).

A name that C++ adds needs a value here, or the test of its file says that none is given. A name
that only --if asks for is a flag and needs none: both ways are tried. `NAME?` is the value that is
tried beside an empty one.
"""

from tests.support.sql_files import ROOT, Statements

# The folder of each database's dialect.
FOLDERS = {"sqlite": "sqlite", "postgresql": "postgres", "mariadb": "mysql"}


def named(text: str) -> dict[str, str]:
    """A line for each: NAME = VALUE; an indented line goes on."""
    lines = text.strip().replace("\n    ", " ").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(" =") for line in lines)}


# What the grammars say.
GRAMMARS = {
    "sqlite": {
        **dict.fromkeys(("locks_rows", "is_server", "has_journal", "in_journal"), ""),
        **dict.fromkeys(("indexes_apart", "returns", "has_returning", "in_halves"), "1"),
    },
    "postgresql": {
        **dict.fromkeys(("locks_rows", "is_server", "has_journal"), "1"),
        **dict.fromkeys(("indexes_apart", "returns", "has_returning"), "1"),
        "number": "bigint",
    },
    "mariadb": {
        **dict.fromkeys(("locks_rows", "is_server", "has_journal"), "1"),
        **dict.fromkeys(("indexes_apart", "returns", "has_returning"), ""),
        "number": "SIGNED",
    },
}

# As to_names() of votes/tables/layout.hpp has them, for the default options.
VOTES = named("""
item = "item"
id = "id"
count = "vote_count"
vote = "vote"
vote_item = "item_id"
vote_user = "user_id"
value = "val"
previous = "prev"
version = "version"
anonymous_vote = "vote_anonymous"
anonymous_user = "op_id"
cell = "vote_cell"
live = "vote_live"
meta = "vote_meta"
journal = "vote_journal"
journal_index = "vote_by_item"
journal_index_name = "vote_by_item"
count_view = "vote_count"
sync = "vote_sync"
recount = "vote_recount"
fold_slot = -1
route = 'journal'
opening_slot = -2
""")

# By the beginning of a file's path below cpp/src.
NAMES: dict[str, dict[str, str]] = {
    "dialects/postgres/": VOTES
    | named("""
item_type = bigint
item_element = bigint
level = 'read committed'
user_element = bigint
user_parameter = CAST(?2 AS bigint)
journal_literal = 'vote_journal'
journal_index_literal = 'vote_by_item'
longest_pause = 60000000
select = SELECT hc_b.number,
    (SELECT SUM(n) FROM "vote_cell" WHERE item = hc_b.item) + COALESCE(SUM(diff), 0)
    FROM "vote_journal" WHERE item = hc_b.item
"""),
    "dialects/postgres/sql/journal.sql": named("""
openings? = SELECT 1
rows = SELECT 1
marks = SELECT 1
"""),
    "dialects/postgres/sql/adoption.sql": named("""
table = "vote"
column = "val"
default = 0
key = "new_key"
index = "new_index"
index_name = "new_index"
unique = UNIQUE
columns = "item_id", "user_id"
statements = SELECT 1;
"""),
    "dialects/postgres/sql/triggers.sql": named("""
table = "vote"
function = "vote_hotcount"
function_literal = '"vote_hotcount"'
"""),
    "votes/": VOTES
    | named("""
1 = ?1
2 = ?2
3 = ?3
opening_slot = -2
place = 'journal'
strategy = 'batched'
form = 'count'
checks_foreign_keys = 1 = 1
slice_rows = 100
last_of_slice = 99
user_index = "by_user"
item_table_end =
item_type = bigint
user_type = bigint
item_parameter = bigint
user_parameter = bigint
difference = ?1
session_mode = NULL
if_so =
when =
table = "vote"
key = "item_id"
"""),
    "dialects/mysql/": VOTES
    | named("""
item_type = BIGINT
wanted_route = 'journal'
wait_ms = 250
key? = "PRIMARY"
patience = wait_timeout = 10
trigger = "new_trigger"
when = AFTER DELETE
others = @hotcount_own = 2 THEN IF TRUE
body = BEGIN END;
text = IF TRUE THEN IF TRUE THEN BEGIN END; END IF; END IF
some_id = 0
"""),
    "dialects/mysql/sql/adoption.sql": named("""
table = "vote"
column = "val"
columns = ADD COLUMN "more" BIGINT,
digits = (6)
key = "new_key"
index = "new_index"
first = "user_id"
second = "item_id"
openings? = DO 1
rows = DO 1
marks = DO 1
"""),
    "dialects/sqlite/": VOTES
    | named("""
mark = '/* hotcount: '
event = deleted
place = item
inserted = '/* hotcount: inserted'
table = 'vote'
"""),
    "dialects/sqlite/sql/triggers.sql": named("""
trigger = "new_trigger"
mark = /* hotcount:
in_item = 1
"""),
    "dialects/sqlite/sql/adoption.sql": named("""
table = "vote"
column = "val"
key = "new_key"
index = "new_index"
first = "user_id"
second = "item_id"
type = 'text'
"""),
    "views/": named("""
table = "hotcount_views"
cell = "hotcount_views_cell"
meta = "hotcount_views_meta"
by_writer = "hotcount_views_by_writer"
purge_page = 500
"""),
    "counter/": named("""
table = "hotcount_slot"
key = "key"
slot = "slot"
count = "count"
op = "hotcount_slot_op"
op_index = "hotcount_slot_op_at"
session_mode = 1
"""),
    "limiter/": named("""
table = "hotcount_limit"
index = "hotcount_limit_expires"
"""),
}

# For one statement of a file: what its caller gives it alone.
GIVEN: dict[tuple[str, str], dict[str, str]] = {
    ("dialects/postgres/sql/adoption.sql", "add_columns"): {"columns": "ADD COLUMN more bigint"},
    ("dialects/mysql/sql/adoption.sql", "default_to_now"): {"column": '"made"'},
    ("dialects/sqlite/sql/adoption.sql", "add_column"): {"column": '"more" INTEGER'},
    # Of an application's own table: hotcount's has no rowid.
    ("dialects/sqlite/sql/votes.sql", "delete_without_user"): {
        "vote": '"item"',
        "votes_without_user": '"id" = ?1 AND "vote_count" = ?2',
    },
}

# Parts that C++ puts into others, and a list that SQLAlchemy expands.
COMPOSED = {
    ("dialects/mysql/sql/triggers.sql", "text"),
    ("dialects/mysql/sql/triggers.sql", "deleted"),
    ("dialects/mysql/sql/triggers.sql", "inserted"),
    ("dialects/mysql/sql/triggers.sql", "updated"),
    ("dialects/mysql/sql/triggers.sql", "inserting"),
    ("dialects/sqlite/sql/adoption.sql", "other_id"),
    ("dialects/sqlite/sql/triggers.sql", "not_counted"),
    ("votes/sql/session.sql", "votes"),
}

# Statements of shared files that only some databases run.
SERVERS = ("postgresql", "mariadb")
ONLY_ON: dict[tuple[str, str], tuple[str, ...]] = {
    # MySQL's own form; the votes of the tests with --mysql run it.
    ("dialects/mysql/sql/vote_batches.sql", "epochs"): (),
    ("views/sql/views.sql", "raise_and_add"): ("postgresql",),
    ("votes/sql/adoption.sql", "other_id"): ("sqlite",),
    ("votes/sql/adoption.sql", "lock_marks"): SERVERS,
    ("votes/sql/adoption.sql", "too_large"): ("sqlite",),
    ("votes/sql/adoption.sql", "fill_journal"): SERVERS,
    ("votes/sql/adoption.sql", "ask_folds"): SERVERS,
    ("votes/sql/audit.sql", "append"): SERVERS,
    ("votes/sql/counts.sql", "fold_lagging"): ("sqlite", "postgresql"),
    ("votes/sql/counts.sql", "append"): SERVERS,
    ("votes/sql/counts.sql", "backlog"): SERVERS,
    ("votes/sql/counts.sql", "look"): SERVERS,
    ("votes/sql/removal.sql", "append"): SERVERS,
    ("votes/sql/removal.sql", "delete_journal"): SERVERS,
    ("votes/sql/session.sql", "look"): ("postgresql",),
    ("votes/sql/session.sql", "write_and_note"): ("postgresql",),
    ("votes/sql/session.sql", "note"): SERVERS,
    ("votes/sql/session.sql", "count_in_journal"): SERVERS,
}

# What a script finds, for a flag of it, or always.
SETUP: dict[tuple[str, str], str] = {
    ("make_index", "unfinished"): 'CREATE INDEX "new_index" ON "vote" ("val")',
    ("add_key", "unfinished"): 'CREATE INDEX "new_index" ON "vote" ("val")',
    ("add_reference", "unchecked"): 'ALTER TABLE "vote" ADD CONSTRAINT "new_key" FOREIGN KEY '
    '("item_id") REFERENCES "item" ("id") NOT VALID',
    ("default_to_now", ""): 'ALTER TABLE "vote" ADD COLUMN "made" DATETIME(6)',
    ("try_rights", ""): 'CREATE TRIGGER "no trigger of hotcount" AFTER DELETE ON "vote" '
    "FOR EACH ROW SET @hotcount = 1",
    ("create_triggers", ""): "CREATE FUNCTION vote_hotcount() RETURNS trigger LANGUAGE plpgsql "
    "AS 'BEGIN RETURN NULL; END'",
}


def statements_of(dialect: str, file: str) -> Statements:
    """Those of a file below cpp/src, with the words of the database."""
    names = dict(GRAMMARS[dialect])
    for beginning in sorted(NAMES, key=len):
        if file.startswith(beginning):
            names |= NAMES[beginning]
    words = f"dialects/{FOLDERS[dialect]}/sql/words.sql"
    shared = ["votes/sql/parts.sql"] if file.startswith(("votes/", "dialects/")) else []
    return Statements.of([ROOT / each for each in (file, *shared, words)], names)
