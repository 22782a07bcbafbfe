-- PostgreSQL's spelling of the clauses and expressions that differ between dialects;
-- sql/dialect.hpp describes each.

-- name: integer
BIGINT
-- name: text
-- "C" compares bytes; the database's own collation may not.
TEXT COLLATE "C"
-- name: uuid
UUID
-- name: full_key
TEXT COLLATE "C"
-- name: long_text
TEXT COLLATE "C"

-- name: table_end
-- Room on each page for the next versions of its rows: an update that moves no index entry leaves
-- nothing for VACUUM.
WITH (fillfactor = 50)
-- name: create_view
CREATE OR REPLACE VIEW
-- name: find_table
SELECT COUNT(to_regclass(
    CASE CAST({1} AS text) WHEN '' THEN '' ELSE quote_ident(CAST({1} AS text)) || '.' END
    || quote_ident(CAST({2} AS text))
))
-- name: lock_schema
-- Two that create at once would meet in the catalogue.
SELECT pg_advisory_xact_lock(hashtext('hotcount schema'));

-- name: or_nothing
ON CONFLICT DO NOTHING
-- name: or_update
ON CONFLICT ({*}) DO UPDATE SET
-- name: excluded
excluded.{1}
-- name: own_write
WITH hc_own AS (SELECT 1)

-- name: differ
{1} IS DISTINCT FROM {2}
-- name: greater
GREATEST({1}, {2})
-- name: typed
CAST({1} AS {2})
-- name: integer_cast
BIGINT
-- name: text_cast
TEXT
-- name: now_microseconds
CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)
-- name: is_standby
CAST(pg_is_in_recovery() AS integer)
-- name: try_write
SELECT CAST(current_setting('transaction_read_only') = 'on' AS integer)
-- name: server_identity
-- Not the system identifier, which standbys share, nor the timeline, which some services hide.
CAST(CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS bigint) AS text)
-- name: pair_after
({1}, {2}) > ({3}, {4})
-- name: and_fits
-- PostgreSQL refuses a sum that leaves 64 bits.
-- name: checked_sum
COALESCE({1}, 0) + {2}

-- name: for_update
FOR UPDATE
-- name: for_no_key_update
FOR NO KEY UPDATE
-- name: for_share
FOR SHARE
-- name: for_key_share
FOR KEY SHARE
-- name: by_primary_key
