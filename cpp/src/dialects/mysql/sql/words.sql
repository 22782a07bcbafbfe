-- The words of MySQL and MariaDB, for statements that all dialects share: sql/dialect.hpp says
-- what each is for.

-- name: integer
BIGINT
-- name: text
-- To the default collation 'a' and 'A' are one key; to utf8mb4_bin 'a' and 'a ' are; and what
-- does neither has one name in MariaDB and another in MySQL.
VARBINARY(1000)
-- name: uuid
CHAR(36) CHARACTER SET ascii COLLATE ascii_bin
-- name: full_key
VARBINARY(2000)
-- name: long_text
MEDIUMBLOB

-- name: table_end
-- In the older formats, which innodb_default_row_format may ask for, keys end at 767 bytes.
ENGINE=InnoDB ROW_FORMAT=DYNAMIC
-- name: create_view
CREATE OR REPLACE VIEW
-- name: find_table
SELECT COUNT(*) FROM information_schema.TABLES
WHERE TABLE_SCHEMA = COALESCE(NULLIF({1}, ''), DATABASE()) AND TABLE_NAME = {2}
-- name: lock_schema

-- name: or_nothing
-- Not INSERT IGNORE, which also swallows a missing foreign key and a value out of range.
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
-- When the statement began, and for how long it has run: it may have waited for a row. Only
-- SYSDATE() goes on meanwhile, and in local time: at the end of summer time it repeats an hour.
-- Clocks jump by multiples of half an hour, so the remainder takes a jump out. It takes the clock
-- of a machine for set back by up to a minute.
(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
    + MOD(TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) + 7260000000, 1800000000) - 60000000)
-- name: is_standby
-- A number, and from MariaDB 12 on a word.
CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF')
-- name: try_write
SELECT {is_standby} OR @@global.innodb_read_only
-- name: server_identity
-- Servers that replicate have different ones.
CAST(@@global.server_id AS CHAR)
-- name: pair_after
-- (a, b) > (x, y) would read the index from its beginning.
({1} > {3} OR ({1} = {3} AND {2} > {4}))
-- name: and_fits
-- MySQL refuses a sum that leaves 64 bits.
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
