-- The table of a SlottedCounter: a count for each key and slot, and the op_ids that were counted.
--
-- Where rows are locked, an update by the key comes first and an insert if there is no row: an
-- upsert burns a value of a surrogate id each time, and in InnoDB takes a gap lock when the unique
-- key is not the primary one. Several rows together are an upsert all the same, sorted: one round
-- trip instead of many. An application's own table may have a nullable count, and a surrogate id
-- beside a unique (key, slot): the COALESCE and the conflict target fit both.

-- name: schema
{lock_schema}
CREATE TABLE IF NOT EXISTS {table} (
    {key} {text} NOT NULL,
    {slot} {integer} NOT NULL,
    {count} {integer} NOT NULL,
    PRIMARY KEY ({key}, {slot})
) {table_end};
CREATE TABLE IF NOT EXISTS {op} (
    "key" {text} NOT NULL,
    op_id {text} NOT NULL,
    at {integer} NOT NULL,
    PRIMARY KEY ("key", op_id)
--if !indexes_apart
    , KEY {op_index} (at)
--end
) {table_end};
--if indexes_apart
CREATE INDEX IF NOT EXISTS {op_index} ON {op} (at);
--end

-- name: add
-- Adds ?3 to slot ?2 of key ?1 if the row is there. With one writer also if it is not; returns the
-- count then.
--if locks_rows
UPDATE {table} SET {count} = COALESCE({count}, 0) + ?3
{of_slot}
--else
{add_or_insert}
RETURNING {count}
--end

-- name: of_slot
WHERE {key} = ?1 AND {slot} = ?2

-- name: add_or_insert
-- Adds to rows: ?1 key, ?2 slot, ?3 difference. Makes a row that is not there.
INSERT INTO {table} ({key}, {slot}, {count})
VALUES
--each ,
    (?1, ?2, ?3)
--end
{or_update({key}, {slot})} {count} = COALESCE({table}.{count}, 0) + {excluded({count})}

-- name: take_free
-- A row if slot ?2 of key ?1 is there and no other transaction holds it. Locks it.
{find}
{skip_held}

-- name: skip_held
--if locks_rows
{for_update} SKIP LOCKED
--end

-- name: find
-- A row if slot ?2 of key ?1 is there.
SELECT 1
FROM {table}
{of_slot}

-- name: sum
-- The sum over the slots of key ?1.
SELECT COALESCE(SUM({count}), 0)
FROM {table}
WHERE {key} = ?1

-- name: lock_rows
-- Slot and count of all rows of key ?1. Locks them, in order.
SELECT {slot}, {count}
FROM {table}
WHERE {key} = ?1
ORDER BY {slot}
{for_update}

-- name: remove
-- Deletes slot ?2 of key ?1.
DELETE FROM {table}
{of_slot}

-- name: remember_op
-- Notes that op_id ?2 of key ?1 was counted at ?3, in seconds. Changes no row if it is known.
INSERT INTO {op} ("key", op_id, at) VALUES (?1, ?2, ?3)
{or_nothing(op_id)}

-- name: old_ops
-- Key and op_id of at most ?2 that are older than ?1 and that no other transaction removes. Locks
-- them.
SELECT "key", op_id
FROM {op}
WHERE at < ?1
LIMIT ?2
{skip_held}

-- name: forget_op
-- Deletes op_id ?2 of key ?1.
DELETE FROM {op}
WHERE "key" = ?1 AND op_id = ?2

-- name: session_add
-- add_or_insert of one row in a session of the application's own: an error if the sum leaves 64
-- bits.
INSERT INTO {table} ({key}, {slot}, {count}) VALUES (?1, ?2, ?3)
{or_update({key}, {slot})} {count} = {checked_sum({table}.{count}, {excluded({count})})}

-- name: session_update
-- The same of a row that is there.
UPDATE {table} SET {count} = {checked_sum({count}, ?3)}
{of_slot}

-- name: session_find
-- Whether slot ?2 of key ?1 is there, and the session's mode.
SELECT ({find}), {session_mode}
