-- SQLite's spelling of the clauses and expressions that differ between dialects; sql/dialect.hpp
-- describes each.

-- name: integer
INTEGER
-- name: text
TEXT
-- name: uuid
TEXT
-- name: full_key
TEXT
-- name: long_text
TEXT

-- name: table_end
WITHOUT ROWID
-- name: create_view
CREATE VIEW IF NOT EXISTS
-- name: find_table
SELECT COUNT(*) FROM sqlite_master WHERE {1} = '' AND name = {2}
-- name: lock_schema

-- name: or_nothing
ON CONFLICT DO NOTHING
-- name: or_update
ON CONFLICT ({*}) DO UPDATE SET
-- name: excluded
excluded.{1}
-- name: own_write

-- name: differ
{1} IS NOT {2}
-- name: greater
MAX({1}, {2})
-- name: typed
{1}
-- name: integer_cast
INTEGER
-- name: text_cast
TEXT
-- name: now_microseconds
CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)
-- name: is_standby
0
-- name: try_write
PRAGMA user_version = 0
-- name: server_identity
''
-- name: pair_after
({1}, {2}) > ({3}, {4})
-- name: and_fits
AND typeof({1}) = 'integer'
-- name: checked_sum
-- Nothing but abs() of the least integer raises an error in an expression.
CASE
    WHEN typeof(COALESCE({1}, 0) + {2}) = 'integer' THEN COALESCE({1}, 0) + {2}
    ELSE abs((-9223372036854775807 - 1))
END

-- name: for_update
-- One writer at a time: a transaction that writes needs no lock of a row.
-- name: for_no_key_update
-- name: for_share
-- name: for_key_share
-- name: by_primary_key
