-- The journal on MariaDB and MySQL. A fold is one transaction of the statements below, in this
-- order.
--
-- The lock of a fold is the mark 'folded_at', which the fold updates, so that a cluster of servers
-- certifies it. Journal rows are deleted by id, because uncommitted rows of voters lie between
-- them. Counts are read and then written as values: an UPDATE that sums cells would wait for the
-- voters of strategy slotted.

-- name: alone
-- Locks the mark 'folded_at', which is the fold's lock. Returns when the last fold began, the
-- server's clock, and how long that fold took; no row if another fold is under way.
SELECT
    CAST(value AS SIGNED),
    {now_microseconds},
    CAST((SELECT value FROM {meta} WHERE name = 'fold_took') AS SIGNED)
FROM {meta}
WHERE name = 'folded_at'
FOR UPDATE SKIP LOCKED

-- name: place
-- Where the counts are kept. Locks that mark, shared.
SELECT value
FROM {meta}
WHERE name = 'counted_in'
LOCK IN SHARE MODE

-- name: wait_for_item
-- Locks item ?1. Fails after 50 ms with 1969 (MariaDB) or 3024 (MySQL).
/*M! SET STATEMENT max_statement_time = 0.050 FOR */
SELECT /*+ MAX_EXECUTION_TIME(50) */ {id}
FROM {item}
WHERE {id} = ?1
FOR UPDATE

-- name: page
-- Locks and returns the oldest ?1 journal rows that no other transaction has locked: id, item,
-- difference. Without FORCE INDEX the server may sort the whole table for a page.
SELECT id, item, diff
FROM {journal} FORCE INDEX (by_id)
ORDER BY id
LIMIT ?1
FOR UPDATE SKIP LOCKED

-- name: page_of
-- As page, for the items ?2.
SELECT id, item, diff
FROM {journal}
WHERE item IN ({list(?2)})
ORDER BY id
LIMIT ?1
FOR UPDATE SKIP LOCKED

-- name: page_but
-- As page, for all items but ?2.
SELECT id, item, diff
FROM {journal} FORCE INDEX (by_id)
WHERE item NOT IN ({list(?2)})
ORDER BY id
LIMIT ?1
FOR UPDATE SKIP LOCKED

-- name: left
-- The ids of the first and the last committed row: after the rows of a page that was not full are
-- deleted, rows that another transaction has locked, and those of votes that committed since. By the
-- key: for each row in by_id that is deleted, and kept for an old transaction, the server would look
-- into the key too (0.5 to 1 s for 300,000 of them, against 15 ms).
SELECT MIN(id), MAX(id)
FROM {journal} FORCE INDEX (PRIMARY)

-- name: left_but
-- As left, without the rows of the items ?1.
SELECT MIN(id), MAX(id)
FROM {journal} FORCE INDEX (PRIMARY)
WHERE item NOT IN ({list(?1)})

-- name: left_of
-- Which of the items ?1 have committed rows.
SELECT DISTINCT item
FROM {journal} FORCE INDEX (PRIMARY)
WHERE item IN ({list(?1)})

-- name: move
-- Adds to cells: ?1 the fold's time, ?2 item, ?3 difference.
INSERT INTO {cell} (item, slot, n, ver)
VALUES
--each ,
    (?2, {fold_slot}, ?3, ?1)
--end
ON DUPLICATE KEY UPDATE
    n = n + VALUES(n),
    ver = GREATEST(ver + 1, VALUES(ver))

-- name: delete_where_id
-- By the key: for most of a small table the server would prefer a scan, which waits for every
-- uncommitted row. MariaDB reads the first comment, MySQL (8.0.20) the second.
/*M! SET STATEMENT sql_safe_updates = 1 FOR */
DELETE /*+ INDEX(hc_j by_id) */
FROM {journal} /*!80020 AS hc_j */
WHERE id

-- name: remove
-- Deletes the journal rows ?1.
{delete_where_id} IN ({list(?1)})

-- name: remove_run
-- Deletes the journal rows from ?1 to ?2.
{delete_where_id} BETWEEN ?1 AND ?2

-- name: totals
-- The sums of the cells of the items ?1: item, sum, the sum as a decimal, the fold's version.
SELECT
    item,
    CAST(SUM(n) AS SIGNED),
    SUM(n),
    MAX(CASE slot WHEN {fold_slot} THEN ver END)
FROM {cell}
WHERE item IN ({list(?1)})
GROUP BY item

-- name: take
-- Locks the items ?1 in order, except those that another transaction has locked. Returns the ids of
-- the items that it has locked.
SELECT {id}
FROM {item}
WHERE {id} IN ({list(?1)})
ORDER BY {id}
FOR UPDATE SKIP LOCKED

-- name: exist
-- Which of the items ?1 exist. Locks nothing.
SELECT {id}
FROM {item}
WHERE {id} IN ({list(?1)})

-- name: again
-- Adds a journal row without a difference for each of the items ?1: the next fold writes their
-- counts.
INSERT INTO {journal} (item, diff)
VALUES
--each ,
    (?1, 0)
--end

-- name: pace
-- Writes when this fold began, ?1 as a text and ?2 as a number, and how long it took.
UPDATE {meta}
SET value = CASE name
    WHEN 'folded_at' THEN ?1
    ELSE CAST({now_microseconds} - ?2 AS CHAR)
    END
WHERE name IN ('folded_at', 'fold_took')

-- name: items
-- The first ?1 items that have journal rows. Locks nothing.
SELECT DISTINCT item
FROM {journal}
ORDER BY item
LIMIT ?1
