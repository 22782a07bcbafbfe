-- The counts in their places: items, cells, the journal. Each statement is part of a transaction
-- that writes votes, or that moves or repairs counts.

-- == Items ==

-- name: add_item
-- Inserts item ?1 unless it exists.
INSERT INTO {item} ({id}) VALUES (?1) {or_nothing({id})}

-- name: add_items
-- Inserts those of many items that do not exist.
INSERT INTO {item} ({id})
VALUES
--each ,
(?1)
--end
{or_nothing({id})}

-- name: existing_items
-- Of many items, the ids that exist. Locks nothing.
SELECT {id}
FROM {item}
WHERE {id} IN (
--each ,
    ?1
--end
)

-- name: lock_item
-- Locks the row of item ?1 until the transaction ends. Voters for the item are not blocked: they
-- need only its key to stay.
SELECT {id} FROM {item} WHERE {id} = ?1 {for_no_key_update}

-- name: keep_item
-- Keeps the row of item ?1 from being deleted until the transaction ends.
SELECT 1 FROM {item} WHERE {id} = {item_id(?1)} {for_key_share}

-- name: bump_item
-- Adds ?1 to the own count of item ?2. Changes no row if there is no such item, or if the count
-- would leave 64 bits.
UPDATE {item}
SET {count} = COALESCE({count}, 0) + ?1
WHERE {id} = ?2
{and_fits(COALESCE({count}, 0) + ?1)}

-- name: count_in_item
-- The own count of item ?1.
SELECT {own_count({item})} FROM {item} WHERE {id} = ?1

-- name: first_item
-- The first item and its own count.
SELECT {id}, {own_count({item})} FROM {item} ORDER BY {id} LIMIT 1

-- == Cells ==

-- name: bump_cell
-- Adds ?3 to the cell ?2 of item ?1. Changes no row if there is no such cell, or if its number
-- would leave 64 bits.
UPDATE {cell}
SET n = n + ?3, ver = ver + 1
WHERE item = ?1 AND slot = ?2
{and_fits(n + ?3)}

-- name: insert_cell
-- Inserts the cell ?2 of item ?1 with the number ?3 unless it exists.
INSERT INTO {cell} (item, slot, n, ver) VALUES (?1, ?2, ?3, 1) {or_nothing(item)}

-- name: folded_count
-- The number {2}, the sum of the cells of item {1}, and its FoldedCount::ver.
SELECT {2}, COALESCE(SUM(n), 0), COALESCE(MAX(CASE WHEN slot = {fold_slot} THEN ver END), 0)
FROM {cell}
WHERE item = {1}

-- name: fold_item
-- Copies the sum of the cells of item ?1 to its own count.
UPDATE {item}
SET {count} = (SELECT COALESCE(SUM(n), 0) FROM {cell} WHERE item = ?1)
WHERE {id} = ?1

-- name: fold_lagging
-- Copies the sum of the cells to the own count of every item whose count differs.
UPDATE {item} AS i
SET {count} = c.total
FROM {cell_totals} AS c
WHERE c.item = i.{id} AND {differ(i.{count}, c.total)}

-- == The journal ==

-- name: append
-- Adds a journal row: item ?1 and difference ?2.
INSERT INTO {journal} (item, diff) VALUES (?1, ?2)

-- name: backlog
-- How many rows the journal has, for how many items, and the microseconds since the last fold
-- began.
SELECT COUNT(*), COUNT(DISTINCT item),
    {now_microseconds} - COALESCE((
        SELECT CAST(value AS {number}) FROM {meta} WHERE name = 'folded_at'
    ), 0)
FROM {journal}

-- name: look
-- 1 if triggers append outside writes to the votes; 1 if the journal has a row; and the
-- microseconds since the last fold began. Reads one row of the journal at most.
SELECT
    CASE
        WHEN {mark('counted_in')} = 'journal' AND {mark('outside_writes')} IS NOT NULL
        THEN 1
        ELSE 0
    END,
    CASE WHEN EXISTS (SELECT 1 FROM {journal}) THEN 1 ELSE 0 END,
    {now_microseconds} - COALESCE((
        SELECT CAST(value AS {number}) FROM {meta} WHERE name = 'folded_at'
    ), 0)
