-- The table of the limiters of one database.

-- name: schema
{lock_schema}
CREATE TABLE IF NOT EXISTS {table} (
    "key" {full_key} NOT NULL,
    state {long_text} NOT NULL,
    expires {integer} NOT NULL,
    PRIMARY KEY ("key")
--if !indexes_apart
    , KEY {index} (expires)
--end
) {table_end};
--if indexes_apart
CREATE INDEX IF NOT EXISTS {index} ON {table} (expires);
--end

-- name: lock
-- Key, state and the database's clock for each row of the keys ?1. Locks the rows, in order.
SELECT "key", state, {now_microseconds}
FROM {table} {by_primary_key}
WHERE "key" IN (
--each ,
    ?1
--end
)
ORDER BY "key"
{for_update}

-- name: insert
-- Adds the keys ?1 without a state, if they are not there.
INSERT INTO {table} ("key", state, expires)
VALUES
--each ,
    (?1, '', 0)
--end
{or_nothing("key")}

-- name: write
-- Updates or inserts rows: ?1 key, ?2 state, ?3 expires.
INSERT INTO {table} ("key", state, expires)
VALUES
--each ,
    (?1, ?2, ?3)
--end
{or_update("key")} state = {excluded(state)}, expires = {excluded(expires)}

-- name: update
-- Writes state ?2 and expires ?3 of key ?1, which is there.
UPDATE {table} SET state = ?2, expires = ?3
WHERE "key" = ?1

-- name: look
-- The state of key ?1, and the database's clock.
SELECT state, {now_microseconds}
FROM {table}
WHERE "key" = ?1

-- name: remove
DELETE FROM {table}
WHERE "key" = ?1

-- name: expired
-- At most ?2 keys that expired before ?1 and that no other transaction holds. Locks them.
SELECT "key"
FROM {table}
WHERE expires < ?1
ORDER BY expires
LIMIT ?2
--if locks_rows
{for_update} SKIP LOCKED
--end
