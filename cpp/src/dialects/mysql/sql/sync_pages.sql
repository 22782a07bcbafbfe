-- Strategy cached on MariaDB and MySQL: pages of items, with their rows of {sync}
-- (votes/cache/sync_table.hpp).

-- name: read
-- The items ?1 and their rows of {sync}. If {alone}, both are locked until the commit, the items in
-- order. A locking read sees the latest committed values.
SELECT {state_columns}
FROM {state_tables}
WHERE hc_i.{id} IN ({list(?1)})
--if alone
ORDER BY hc_i.{id}
FOR UPDATE
--end

-- name: mark_saved
-- Notes that the counts of items ?1 are those of gen ?2 and version ?3.
INSERT INTO {sync} (item, saved_gen, saved_version)
VALUES
--each ,
    (?1, ?2, ?3)
--end
ON DUPLICATE KEY UPDATE
    saved_gen = VALUES(saved_gen),
    saved_version = VALUES(saved_version)

-- name: sums
-- The sum of votes and opening balance of each of the items ?1. Locks nothing.
SELECT hc_i.{id}, {owed(hc_i.{id})}
FROM {item} AS hc_i
WHERE hc_i.{id} IN ({list(?1)})

-- name: set_counts
-- Sets the count of items: ?1 item, ?2 count. Locks the items. The CASE compares each row with half
-- of the items on average, which takes some 10 ms for 1,000 rows.
UPDATE {item}
SET {count} = CASE {id}
--each
    WHEN ?1 THEN ?2
--end
    ELSE {count} END
WHERE {id} IN ({list(?1)})

-- name: is_ours
-- Returns a row if the tables count under the cache id ?2.
SELECT 1
FROM {meta}
WHERE name = 'cache_id' AND value = ?2

-- name: fence
-- MariaDB: the four steps below in one trip, and COMMIT; does nothing unless {is_ours} returns a
-- row. ?1 holder, ?3 items. The first step locks the rows of {sync}; a transaction that writes a
-- count locks them exclusively, so the values that the last step reads hold until the COMMIT.
BEGIN NOT ATOMIC
    IF EXISTS ({is_ours}) THEN
        {fence_lock};
        {fence_recount};
        {fence_take};
        {fence_read};
        COMMIT;
    ELSE
        ROLLBACK;
    END IF;
END

-- name: fence_lock
-- Raises the gen of the items, in order.
INSERT INTO {sync} (item, gen, holder)
SELECT hc_i.{id}, 1, ?1
FROM {item} AS hc_i
WHERE hc_i.{id} IN ({list(?3)})
ORDER BY hc_i.{id}
ON DUPLICATE KEY UPDATE {sync}.gen = {sync}.gen + 1

-- name: fence_recount
-- Asks for a recount of the items that had another holder.
INSERT INTO {recount} (item, asked)
SELECT hc_s.item, 1
FROM {sync} AS hc_s
WHERE hc_s.item IN ({list(?3)})
    AND hc_s.holder <> ''
    AND hc_s.holder <> ?1
ORDER BY hc_s.item
ON DUPLICATE KEY UPDATE {recount}.asked = {recount}.asked + 1

-- name: fence_take
-- Makes ?1 their holder.
UPDATE {sync}
SET holder = ?1
WHERE item IN ({list(?3)})
    AND (holder IS NULL OR holder <> ?1)

-- name: fence_read
-- Returns item, gen, epoch and count.
SELECT hc_i.{id}, hc_s.gen, hc_s.epoch, COALESCE(hc_i.{count}, 0)
FROM {item} AS hc_i
JOIN {sync} AS hc_s ON hc_s.item = hc_i.{id}
WHERE hc_i.{id} IN ({list(?3)})
