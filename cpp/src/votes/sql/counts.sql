-- The counts in their places: items, cells, the journal. Each statement is part of a transaction
-- that writes votes, or that moves or repairs counts.

-- == Items ==

-- Makes item ?1; nothing if it exists.
-- name: add_item
INSERT INTO {item} ({id}) VALUES (?1) {or_nothing({id})}

-- Makes those of many items that do not exist.
-- name: add_items
INSERT INTO {item} ({id})
VALUES
--each ,
(?1)
--end
{or_nothing({id})}

-- Those of many items that exist. Locks nothing.
-- name: existing_items
SELECT {id}
FROM {item}
WHERE {id} IN (
--each ,
?1
--end
)

-- The row of item ?1 is the transaction's until its end. Whoever votes for the item only needs
-- its key to stay.
-- name: lock_item
SELECT {id} FROM {item} WHERE {id} = ?1 {for_no_key_update}

-- The row of item ?1 stays there until the transaction's end.
-- name: keep_item
SELECT 1 FROM {item} WHERE {id} = {item_id(?1)} {for_key_share}

-- Adds ?1 to the own count of item ?2; no row if it would leave 64 bits.
-- name: bump_item
UPDATE {item}
SET {count} = COALESCE({count}, 0) + ?1
WHERE {id} = ?2
{and_fits(COALESCE({count}, 0) + ?1)}

-- The own count of item ?1.
-- name: count_in_item
SELECT {own_count({item})} FROM {item} WHERE {id} = ?1

-- The first item and its own count.
-- name: first_item
SELECT {id}, {own_count({item})} FROM {item} ORDER BY {id} LIMIT 1

-- == Cells ==

-- Adds ?3 to the cell ?2 of item ?1; no row if it is not there, or would leave 64 bits.
-- name: bump_cell
UPDATE {cell}
SET n = n + ?3, ver = ver + 1
WHERE item = ?1 AND slot = ?2
{and_fits(n + ?3)}

-- Makes the cell ?2 of item ?1 with ?3 in it; no row if it is there.
-- name: insert_cell
INSERT INTO {cell} (item, slot, n, ver) VALUES (?1, ?2, ?3, 1) {or_nothing(item)}

-- The sum of the cells of item ?1.
-- name: count_in_cells
SELECT COALESCE(SUM(n), 0) FROM {cell} WHERE item = ?1

-- The number {2}, the sum of the cells of item {1}, and when a fold last counted it.
-- name: folded_count
SELECT {2}, COALESCE(SUM(n), 0), COALESCE(MAX(CASE WHEN slot = {fold_slot} THEN ver END), 0)
FROM {cell}
WHERE item = {1}

-- Copies the sum of the cells of item ?1 to its own count.
-- name: fold_item
UPDATE {item}
SET {count} = (SELECT COALESCE(SUM(n), 0) FROM {cell} WHERE item = ?1)
WHERE {id} = ?1

-- The same for every item that lags.
-- name: fold_lagging
UPDATE {item} AS i
SET {count} = c.total
FROM {cell_totals} AS c
WHERE c.item = i.{id} AND {differ(i.{count}, c.total)}

-- == The journal ==

-- A journal row: item ?1 and difference ?2.
-- name: append
INSERT INTO {journal} (item, diff) VALUES (?1, ?2)

-- How many rows the journal has, for how many items, and the microseconds since the last fold
-- began.
-- name: backlog
SELECT COUNT(*), COUNT(DISTINCT item),
    {now_microseconds} - COALESCE((
        SELECT CAST(value AS {number}) FROM {meta} WHERE name = 'folded_at'
    ), 0)
FROM {journal}
