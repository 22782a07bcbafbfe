-- The state that strategy cached keeps in SQL of the counts in a cache: votes/cache/sync_table.hpp
-- describes the columns. Locks are taken in the order item, vote_sync.

-- name: schema
-- The tables. {item_type} is the type of the item table's ids.
CREATE TABLE IF NOT EXISTS {sync} (
    item {item_type} NOT NULL PRIMARY KEY,
    epoch {integer} NOT NULL DEFAULT 0,
    gen {integer} NOT NULL DEFAULT 0,
    saved_gen {integer} NOT NULL DEFAULT 0,
    saved_version {integer} NOT NULL DEFAULT 0,
    holder {text},
    wide {integer} NOT NULL DEFAULT 0
) {table_end};
CREATE TABLE IF NOT EXISTS {recount} (
    item {item_type} NOT NULL PRIMARY KEY,
    asked {integer} NOT NULL
) {table_end};

-- == The state of an item ==

-- name: share_item
-- Keeps the row of item ?1 as it is, with a shared lock.
SELECT 1 FROM {item} WHERE {id} = ?1 {for_share}

-- name: lock_item
-- Locks the row of item ?1. Not FOR UPDATE on PostgreSQL, which also waits for transactions that
-- have inserted a vote: two of them would wait for each other.
SELECT 1 FROM {item} WHERE {id} = ?1 {for_no_key_update}

-- name: lock_marks
-- Locks the row of item ?1 in vote_sync.
SELECT 1 FROM {sync} WHERE item = ?1 {for_no_key_update}

-- name: read_state
-- The state of item ?1, as SyncState has it; no row if the item does not exist. Locks nothing.
SELECT {state_columns}
FROM {state_tables}
WHERE hc_i.{id} = ?1

-- name: stored
-- The number {2}, the id, the own count and the epoch of item {1}; no row if it does not exist.
SELECT {2}, hc_i.{id}, {own_count(hc_i)}, COALESCE(hc_s.epoch, 0)
FROM {state_tables}
WHERE hc_i.{id} = {1}

-- name: sum_of_item
-- The count that item ?1 must have; numbered_sum has the number {2} before it. Without sums in
-- decimals a partial sum may exceed 64 bits although the total does not. So the upper and the lower
-- halves of the numbers are summed apart.
SELECT {whole_sum(?1)}
-- name: numbered_sum
SELECT {2}, {whole_sum({1})}
-- name: whole_sum
--if in_halves
({owed_in({1}, >> 32)}), ({owed_in({1}, & 4294967295)})
--else
{owed({1})}
--end

-- name: set_wide
-- Has votes for item ?1 check its sum.
INSERT INTO {sync} (item, wide)
VALUES (?1, 1)
{or_update(item)}
wide = 1

-- name: set_wide_openings
-- Sets `wide` of all items whose opening balance is beyond 32 bits.
INSERT INTO {sync} (item, wide)
SELECT item, 1
FROM {cell}
WHERE slot = {opening_slot} AND (n > 2147483648 OR n < -2147483648)
{or_update(item)}
wide = 1

-- == Fills and saves ==

-- name: fence
-- Raises the gen of items for a fill by the cache ?1, in their order.
INSERT INTO {sync} (item, gen, holder)
VALUES
--each ,
(?2, 1, ?1)
--end
{or_update(item)}
gen = {sync}.gen + 1, holder = {excluded(holder)}

-- name: save_count
-- Writes the own count ?1 of item ?2, and which gen and version of item ?1 that is.
UPDATE {item} SET {count} = ?1 WHERE {id} = ?2
-- name: save_marks
UPDATE {sync} SET saved_gen = ?2, saved_version = ?3 WHERE item = ?1

-- name: unsaved
-- The items that were filled and not saved since. Reads the whole table.
SELECT item FROM {sync} WHERE gen > saved_gen

-- == Recounts ==

-- name: new_epoch
-- Begins an epoch for each item, above its own and not below the given one. The gen is raised as
-- well, which voids saves of earlier counts. No hash has this gen, and its count is saved. MariaDB
-- assigns in this order.
INSERT INTO {sync} (item, epoch, gen, saved_gen)
VALUES
--each ,
(?1, ?2, 1, 1)
--end
{or_update(item)}
epoch = {greater({sync}.epoch + 1, {excluded(epoch)})},
saved_gen = {sync}.gen + 1,
saved_version = 0,
gen = {sync}.gen + 1

-- name: ask
-- Asks for a recount of each item, once more if one is asked for already.
INSERT INTO {recount} (item, asked)
VALUES
--each ,
(?1, 1)
--end
{or_update(item)}
asked = {recount}.asked + 1

-- name: asked
-- At most ?1 requests in the order of the items: the id as the item's row has it, how often it
-- was asked, and the id as it was asked.
SELECT COALESCE(i.{id}, r.item), r.asked, r.item
FROM {recount} AS r LEFT JOIN {item} AS i ON i.{id} = r.item
ORDER BY r.item
LIMIT ?1

-- name: settle
-- Deletes requests, except those that were made again since they were read.
DELETE FROM {recount}
WHERE
--each OR
(item = ?1 AND asked = ?2)
--end

-- name: take_back
-- Undoes ?2 of the requests for item ?1.
UPDATE {recount} SET asked = asked - ?2 WHERE item = ?1

-- name: forget_all
DELETE FROM {recount}

-- == The cache of these tables ==

-- name: read_marks
-- The place of the counts and the name under which these tables count in a cache.
SELECT name, value FROM {meta} WHERE name IN ('counted_in', 'cache_id')
-- name: hold_marks
-- The marks, with a shared lock until the transaction ends.
{read_marks}
{for_share}
-- name: write_id
{set_mark('cache_id', ?1)}
