-- Statements over whole vote tables that differ from other databases' statements.

-- name: journal
-- The rows of an item lie together. With an index by item each of them was looked up in the table
-- as well, and an exact read over 10,000 Zipf items took 0.25 ms of the server's time instead of
-- 0.1. Folds go by the id.
CREATE TABLE IF NOT EXISTS {journal} (
    id {integer} NOT NULL AUTO_INCREMENT,
    item {item_type} NOT NULL,
    diff {integer} NOT NULL,
    PRIMARY KEY (item, id),
    UNIQUE KEY by_id (id))
{table_end};

-- name: lock_fold
-- Blocks other folds until the commit.
SELECT value
FROM {meta}
WHERE name = 'folded_at'
FOR UPDATE;

-- name: lock_all
-- Blocks votes, and moves of the counts, until the commit.
SELECT value
FROM {meta}
ORDER BY name
FOR UPDATE;

-- name: note_move
-- Galera: other nodes' votes are to be counted after this move of the counts. A process at another node
-- that opens the streams of write_behind meanwhile does not see this transaction's locks; it writes
-- stream_life, too, so that one of the two is refused.
{set_mark('moved_at', CAST({now_microseconds} AS {text_cast}))};
UPDATE {meta}
SET value = CAST(value + 1 AS CHAR)
WHERE name = 'stream_life';

-- name: pass_other_nodes
-- Galera runs ANALYZE TABLE on each node at the same place among all transactions. It refuses a
-- transaction on these tables that comes later and whose node had not run this when it was to commit.
-- Earlier ones are committed on this node when the statement returns. Reads 20 pages of each index. The
-- items are among the tables for workers of strategy cached, which write counts without votes.
SET SESSION wsrep_OSU_method = 'TOI';
ANALYZE TABLE
    {vote} /*M! PERSISTENT FOR COLUMNS () INDEXES () */,
    {anonymous_vote} /*M! PERSISTENT FOR COLUMNS () INDEXES () */,
    {item} /*M! PERSISTENT FOR COLUMNS () INDEXES () */

-- name: lock_items
-- Blocks changes of items until the commit.
SELECT COUNT(*)
FROM {item}
FOR UPDATE

-- name: lagging
-- Items whose count is not the sum of their cells. Locks nothing: an UPDATE would lock every cell
-- that it sums.
SELECT i.{id}
FROM {item} AS i
JOIN {cell_totals} AS c ON c.item = i.{id}
WHERE {differ(i.{count}, c.total)}
ORDER BY i.{id}

-- name: delete_without_user
-- Deletes up to ?3 of {votes_without_user}. Locks them.
DELETE FROM {vote}
WHERE {votes_without_user}
LIMIT ?3
