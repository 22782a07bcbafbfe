-- The tables of a WriteBehindCounter. Statements over several rows have their parameters for each
-- row.
--
--   {table}  (key, total)
--   {cell}   (key, writer, up, down, was_up, was_down): the sums of each writer in the total,
--            and their values before the last change
--   {meta}   (name, value). 'forgotten': cells of writers that began before that second have no row
--            any more, and are refused
--
-- Locks: 'forgotten' (shared), cells by key and writer, totals by key.

-- name: schema
{lock_schema}
CREATE TABLE IF NOT EXISTS {table} (
    "key" {text} NOT NULL,
    total {integer} NOT NULL,
    PRIMARY KEY ("key")
) {table_end};
CREATE TABLE IF NOT EXISTS {cell} (
    "key" {text} NOT NULL,
    writer {text} NOT NULL,
    up {integer} NOT NULL,
    down {integer} NOT NULL,
    was_up {integer} NOT NULL,
    was_down {integer} NOT NULL,
    PRIMARY KEY ("key", writer)
--if !indexes_apart
    , KEY {by_writer} (writer)
--end
) {table_end};
--if indexes_apart
CREATE INDEX IF NOT EXISTS {by_writer} ON {cell} (writer);
--end
CREATE TABLE IF NOT EXISTS {meta} (
    name {text} NOT NULL,
    value {integer} NOT NULL,
    PRIMARY KEY (name)
) {table_end};
INSERT INTO {meta} (name, value) VALUES ('forgotten', 0)
{or_nothing(name)};

-- name: read_forgotten
SELECT value
FROM {meta}
WHERE name = 'forgotten'

-- name: hold_forgotten
-- Reads the value, which no transaction can change until the commit.
{read_forgotten}
{for_share}

-- name: raise_forgotten
-- Raises the value to ?1, unless it is higher.
UPDATE {meta} SET value = ?1
WHERE name = 'forgotten' AND value < ?1

-- name: now
SELECT {now_microseconds}

-- name: hold_total
-- Reads the total of key ?1 and locks it until the commit.
SELECT total
FROM {table}
WHERE "key" = ?1
{for_update}

-- name: old_cells
-- Key and writer of at most {purge_page} cells of writers before ?1.
SELECT "key", writer
FROM {cell}
WHERE writer < ?1
ORDER BY writer
LIMIT {purge_page}

-- name: raise
-- Raises cells: ?1 key, ?2 writer, ?3 up, ?4 down. Returns key, writer and difference of each,
-- where the database has RETURNING.
INSERT INTO {cell} ("key", writer, up, down, was_up, was_down)
VALUES
--each ,
    (?1, ?2, ?3, ?4, 0, 0)
--end
{or_raise}
--if returns
RETURNING "key", writer, {difference}
--end

-- name: or_raise
-- MySQL assigns from the left to the right: the old values are kept first.
{or_update("key", writer)}
    was_up = {cell}.up,
    was_down = {cell}.down,
    up = {greater({cell}.up, {excluded(up)})},
    down = {greater({cell}.down, {excluded(down)})}

-- name: difference
(up - was_up) - (down - was_down)

-- name: differences
-- Key, writer and difference of cells: ?1 key, ?2 writer.
SELECT "key", writer, {difference}
FROM {cell}
WHERE {of_cells}

-- name: of_cells
--each OR
    ("key" = ?1 AND writer = ?2)
--end

-- name: applied
-- Key, writer, up and down of cells: ?1 key, ?2 writer.
SELECT "key", writer, up, down
FROM {cell}
WHERE {of_cells}

-- name: remove
-- Deletes cells: ?1 key, ?2 writer.
DELETE FROM {cell}
WHERE {of_cells}

-- name: add
-- Adds to totals: ?1 key, ?2 difference.
INSERT INTO {table} ("key", total)
VALUES
--each ,
    (?1, ?2)
--end
{or_add}

-- name: or_add
{or_update("key")} total = {checked_sum({table}.total, {excluded(total)})}

-- name: raise_and_add
-- PostgreSQL: all that ViewTables::apply() does. The database carries the parts out in this order,
-- because each needs the one before it. Parameters as of raise. Returns 'forgotten'.
WITH hc_f AS (
    {hold_forgotten}
),
hc_r AS (
    INSERT INTO {cell} ("key", writer, up, down, was_up, was_down)
    SELECT hc_k, hc_w, hc_u, hc_d, 0, 0
    FROM (
        VALUES
--each ,
            (CAST(?1 AS text), CAST(?2 AS text), CAST(?3 AS bigint), CAST(?4 AS bigint))
--end
    ) hc_v (hc_k, hc_w, hc_u, hc_d), hc_f
    WHERE hc_w COLLATE "C" >= lpad(to_hex(value), 10, '0')
    ORDER BY hc_k COLLATE "C", hc_w COLLATE "C"
    {or_raise}
    RETURNING "key", writer, {difference} AS n
),
hc_a AS (
    INSERT INTO {table} ("key", total)
    SELECT "key", sum(n)
    FROM hc_r
    GROUP BY "key"
    HAVING sum(n) <> 0
    ORDER BY "key"
    {or_add}
)
SELECT value
FROM hc_f

-- name: read
-- Of key ?1: a row '', total, 'forgotten', and a row writer, up, down for each of the writers ?2.
SELECT '' AS writer, (SELECT total FROM {table} WHERE "key" = ?1) AS up, value AS down
FROM {meta}
WHERE name = 'forgotten'
UNION ALL
SELECT writer, up, down
FROM {cell}
WHERE "key" = ?1 AND writer IN (
--each ,
    ?2
--end
)

-- name: totals
-- Key and total of the keys ?1.
SELECT "key", total
FROM {table}
WHERE "key" IN (
--each ,
    ?1
--end
)
