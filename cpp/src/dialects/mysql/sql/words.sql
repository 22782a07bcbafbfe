-- MySQL's and MariaDB's spelling of the clauses and expressions that differ between dialects;
-- sql/dialect.hpp describes each.

-- name: integer
BIGINT
-- name: text
-- Bytes, because no collation will do: the default one compares 'a' and 'A' as equal, utf8mb4_bin
-- 'a' and 'a ', and the collation that does neither has different names in MariaDB and MySQL.
VARBINARY(1000)
-- name: uuid
CHAR(36) CHARACTER SET ascii COLLATE ascii_bin
-- name: full_key
VARBINARY(2000)
-- name: long_text
MEDIUMBLOB

-- name: table_end
-- innodb_default_row_format may name an older format, whose index keys are limited to 767 bytes.
ENGINE=InnoDB ROW_FORMAT=DYNAMIC
-- name: create_view
CREATE OR REPLACE VIEW
-- name: find_table
SELECT COUNT(*) FROM information_schema.TABLES
WHERE TABLE_SCHEMA = COALESCE(NULLIF({1}, ''), DATABASE()) AND TABLE_NAME = {2}
-- name: lock_schema

-- name: or_nothing
-- INSERT IGNORE would also ignore a missing foreign key and a value out of range.
ON DUPLICATE KEY UPDATE {1} = {1}
-- name: or_update
ON DUPLICATE KEY UPDATE
-- name: excluded
VALUES({1})
-- name: own_write

-- name: differ
NOT ({1} <=> {2})
-- name: greater
GREATEST({1}, {2})
-- name: typed
{1}
-- name: integer_cast
SIGNED
-- name: text_cast
CHAR
-- name: now_microseconds
-- The statement's start in UTC plus the time since then, as it may have waited for a lock. Only
-- SYSDATE() advances during a statement, but it is local time, which repeats an hour when summer
-- time ends. Time zones shift by multiples of 30 minutes, so the remainder by 30 minutes removes a
-- shift. The remainder is from -1 to 29 minutes: below 0, the machine's clock was set back.
(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
    + MOD(TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) + 7260000000, 1800000000) - 60000000)
-- name: is_standby
-- read_only is a number, and from MariaDB 12 on a word.
CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF')
-- name: try_write
SELECT {is_standby} OR @@global.innodb_read_only
-- name: server_identity
-- Servers that replicate from each other have different ids.
CAST(@@global.server_id AS CHAR)
-- name: pair_after
-- For (a, b) > (x, y) the server would read the index from its beginning.
({1} > {3} OR ({1} = {3} AND {2} > {4}))
-- name: and_fits
-- Empty: MySQL refuses a sum beyond 64 bits.
-- name: checked_sum
COALESCE({1}, 0) + {2}

-- name: for_update
FOR UPDATE
-- name: for_no_key_update
FOR UPDATE
-- name: for_share
LOCK IN SHARE MODE
-- name: for_key_share
LOCK IN SHARE MODE
-- name: by_primary_key
FORCE INDEX (PRIMARY)
