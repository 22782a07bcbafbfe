-- Takes votes out of the tables, several rows at a time. Each statement is part of a transaction
-- that moves the counts too. Rows are found without a lock, which a scan would take from voters,
-- and then locked by their keys in the order of the keys.

-- name: of_ids
-- Rows whose {1} is one of a page's ids, which are ?4 and up. ?2 and ?3 are the first and the last
-- id. Without that range MariaDB may read, and lock, all rows that another index has for ?1: all
-- votes of a user, or for an item.
{1} BETWEEN ?2 AND ?3 AND {1} IN (
--each ,
    ?4
--end
)

-- name: delete_votes
-- Begins an INSERT or DELETE of ours on a vote table.
{own_write}
DELETE FROM {vote}

-- == Of a user ==

-- name: user_index
-- The index by which a user's votes are found; the operator may create it by hand.
CREATE INDEX {user_index} ON {vote} ({vote_user}, {vote_item})

-- name: first_items
-- A page of the items that user ?1 has rows for, in order, at most ?2. Locks nothing.
SELECT {vote_item}
FROM {vote}
WHERE {vote_user} = {user_id(?1)}
ORDER BY {vote_item}
LIMIT ?2

-- name: next_items
-- Up to ?3 items of user ?1 that follow item ?2.
SELECT {vote_item}
FROM {vote}
WHERE {vote_user} = {user_id(?1)} AND {vote_item} > ?2
ORDER BY {vote_item}
LIMIT ?3

-- name: lock_of_user
-- Locks the votes of user ?1 for a page of items, in the order of the items. Returns item, value
-- and version of each.
SELECT {vote_item}, {value}, {version}
FROM {vote}
WHERE {vote_user} = ?1 AND {of_ids({vote_item})}
ORDER BY {vote_item}
{for_update}

-- name: delete_of_user
-- Deletes them.
{delete_votes}
WHERE {vote_user} = ?1 AND {of_ids({vote_item})}

-- name: lock_items
-- Locks the rows of a page of items, ?3 and up, against transactions that update their counts, in
-- the order of their ids. ?1 and ?2 are the first and the last. An item's id was found among the
-- votes: the item table's ids may be narrower.
SELECT {id}
FROM {item}
WHERE {id} BETWEEN {item_id(?1)} AND {item_id(?2)} AND {id} IN (
--each ,
    {item_id(?3)}
--end
)
ORDER BY {id}
{for_no_key_update}

-- name: uncount_items
-- Takes the votes of user ?1 for a page of items out of the items' own counts, before the votes
-- are deleted. Locks the items.
UPDATE {item}
SET {count} = {checked_sum({count}, {uncounted})}
WHERE {id} BETWEEN {item_id(?2)} AND {item_id(?3)} AND {id} IN (
--each ,
    {item_id(?4)}
--end
)
-- name: uncounted
COALESCE((
    SELECT -{value} FROM {vote} WHERE {vote_item} = {item}.{id} AND {vote_user} = ?1
), 0)

-- name: append
{append_rows}

-- name: add_to_cells
-- Adds each difference to the item's cell of slot 0. Locks the cells.
INSERT INTO {cell} (item, slot, n, ver)
VALUES
--each ,
(?1, 0, ?2, 1)
--end
{or_update(item, slot)}
n = {checked_sum({cell}.n, {excluded(n)})}, ver = {cell}.ver + 1

-- == Of an item ==

-- name: lock_of_item
-- Locks the first ?3 votes for item ?1 of versions up to ?2, in the order of the users. Returns
-- user, value and version of each.
SELECT {vote_user}, {value}, {version}
FROM {vote}
WHERE {vote_item} = {item_id(?1)} AND {vote_user} IS NOT NULL
    AND ({version} IS NULL OR {version} <= ?2)
ORDER BY {vote_user}
LIMIT ?3
{for_update}

-- name: delete_of_item
-- Deletes the votes of a page of users for item ?1.
{delete_votes}
WHERE {vote_item} = ?1 AND {of_ids({vote_user})}

-- name: find_without_user
-- The values of at most ?2 votes for item ?1 that have no user. Locks nothing.
SELECT {value}
FROM {vote}
WHERE {vote_item} = {item_id(?1)} AND {vote_user} IS NULL
LIMIT ?2

-- name: has_votes
-- Whether item ?1 has votes: a row if so. Locks nothing.
SELECT 1 FROM {vote} WHERE {vote_item} = {item_id(?1)}
UNION ALL
SELECT 1 FROM {anonymous_vote} WHERE {vote_item} = {item_id(?1)}
LIMIT 1

-- name: sum_of_item
-- The count that item ?1 must have.
SELECT {owed({item_id(?1)})}

-- name: hold_item
-- Blocks changes of the row of item ?1 by other transactions until this one ends, but not votes for
-- the item. Returns a row if the item has one.
SELECT 1 FROM {item} WHERE {id} = {item_id(?1)} {for_no_key_update}

-- name: take_item
-- Blocks votes for item ?1 as well.
SELECT 1 FROM {item} WHERE {id} = {item_id(?1)} {for_update}

-- name: next_ver
-- A FoldedCount::ver above those of all earlier counts of item ?1.
SELECT {greater(COALESCE(MAX(ver), 0) + 1, {now_microseconds})}
FROM {cell}
WHERE item = ?1

-- name: delete_journal
-- The next statements delete all counts of item ?1, but not its votes.
DELETE FROM {journal} WHERE item = ?1
-- name: delete_cells
DELETE FROM {cell} WHERE item = ?1

-- name: clear_count
-- Sets the item's own count: clear_count if votes are blocked, recount_item if votes may have come.
UPDATE {item} SET {count} = 0 WHERE {id} = ?1
-- name: recount_item
UPDATE {item} SET {count} = {owed({item}.{id})} WHERE {id} = ?1

-- name: delete_item
DELETE FROM {item} WHERE {id} = ?1

-- == Scans ==

-- name: slice
-- Where no index finds the wanted rows, a scan reads the table in slices of VoteRemoval::kSlice rows,
-- in the order of the key. Locks nothing. `after`: the slice begins after the key ({2}, {3}).
SELECT {1}
FROM {vote}
WHERE {votes_with_user}
--if after
    AND {pair_after({vote_item}, {vote_user}, {2}, {3})}
--end
ORDER BY {vote_item}, {vote_user}
LIMIT

-- name: slice_of_user
-- The keys in the slice of the votes of user ?1, after the key (?2, ?3).
SELECT hc_s.item, hc_s.voter
FROM ({named_slice} {slice_rows}) AS hc_s
WHERE hc_s.voter = {user_id(?1)}
ORDER BY hc_s.item, hc_s.voter

-- name: slice_retracted
-- The keys in the slice of retracted votes that are older than ?1, after the key (?2, ?3). A vote
-- without a version is older than any that has one.
SELECT hc_s.item, hc_s.voter
FROM ({named_slice} {slice_rows}) AS hc_s
WHERE {retracted(hc_s.val, hc_s.version)}
ORDER BY hc_s.item, hc_s.voter

-- name: named_slice
{slice({named_columns}, ?2, ?3)}
-- name: named_columns
{vote_item} AS item, {vote_user} AS voter, {value} AS val, {version} AS version
-- name: retracted
{1} = 0 AND ({2} IS NULL OR {2} < ?1)

-- name: end_of_slice
-- The last key of the slice that begins after the key (?1, ?2); no row if the slice is not full.
{slice({key_columns}, ?1, ?2)}
1 OFFSET {last_of_slice}
-- name: key_columns
{vote_item}, {vote_user}

-- name: lock_retracted
-- Locks the retracted votes with the keys (?2, ?3) and so on that are still older than ?1, in the
-- order of the keys.
SELECT 1
FROM {vote}
WHERE {retracted({value}, {version})} AND (
--each OR
    ({vote_item} = ?2 AND {vote_user} = ?3)
--end
)
ORDER BY {vote_item}, {vote_user}
{for_update}

-- name: delete_retracted
-- Deletes them.
{delete_votes}
WHERE {retracted({value}, {version})} AND (
--each OR
    ({vote_item} = ?2 AND {vote_user} = ?3)
--end
)
