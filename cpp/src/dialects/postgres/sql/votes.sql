-- Votes on PostgreSQL: one upsert keeps the old value in the row itself, because a read beside the
-- upsert reads the statement's snapshot, which may be older.
--
-- Each statement checks the vote route. The route stays the same until the commit without a lock on
-- the mark: a transaction that moves the counts first waits for every transaction that has written
-- votes, and a statement that waited for that transaction has its snapshot after its commit.
--
-- With {serializable} the snapshot is taken before the wait, so each statement locks the mark
-- (shared): if the mark has changed since the snapshot, the server ends the transaction (40001), and it
-- begins again.
--
-- Names of CTEs begin with hc_: another name could hide a table of the application. Triggers
-- recognize our writes by WITH hc_own at the beginning of the text (triggers.sql).
--
-- Locks: stream_fence (shared), item (the lock that the foreign key takes), vote, journal or cell.

-- name: insert_vote
-- SELECT item, user, value, 0, version follows.
INSERT INTO {vote} ({vote_item}, {vote_user}, {value}, {previous}, {version})

-- name: or_set
-- Leaves a row alone that is as asked, or newer than the version. Such a row is not returned.
ON CONFLICT ({vote_item}, {vote_user}) DO UPDATE SET
    {previous} = {vote}.{value},
    {value} = excluded.{value},
    {version} = COALESCE(excluded.{version}, {vote}.{version})
WHERE
    CASE WHEN excluded.{version} IS NULL
        THEN {vote}.{value} IS DISTINCT FROM excluded.{value}
        ELSE COALESCE({vote}.{version} < excluded.{version}, TRUE)
    END

-- name: ballots
-- The votes of arrays: ?1 items, ?2 users, ?3 values, ?4 versions.
unnest(
    CAST(?1 AS {item_element}[]), CAST(?2 AS {user_element}[]),
    CAST(?3 AS bigint[]), CAST(?4 AS bigint[])
) WITH ORDINALITY AS b (item, voter, val, version, number)

-- name: set
-- Writes a vote in a transaction: ?1 item, ?2 user, ?3 value, ?4 version. Locks the vote's row.
-- Returns the old and the new value of a vote that changed.
WITH hc_own AS (SELECT 1)
{insert_vote}
SELECT ?1, ?2, ?3, 0, ?4
FROM {meta}
WHERE name = 'vote_route' AND value = {route}
--if serializable
FOR SHARE
--end
{or_set}
RETURNING {previous} AS prev, {value} AS val

-- name: read
-- The value of the vote of item ?1 and user ?2.
SELECT {value}
FROM {vote}
WHERE {vote_item} = ?1 AND {vote_user} = ?2

-- name: set_all
-- Writes the votes of the arrays ?1 to ?4, each row once, in their order. The caller has checked
-- the place. Returns item, user, old and new value of each vote that changed.
WITH hc_own AS (SELECT 1)
{insert_vote}
SELECT item, voter, val, 0, version
FROM {ballots}
ORDER BY number
{or_set}
RETURNING {vote_item}, {vote_user}, {previous} AS prev, {value} AS val

-- name: read_all
-- Item, user and value of the votes of the arrays ?1 and ?2, in their order.
SELECT b.item, b.voter, v.{value}
FROM {ballots}
JOIN {vote} AS v ON v.{vote_item} = b.item AND v.{vote_user} = b.voter
ORDER BY number

-- name: comes_this_way
-- A condition on a row of {meta}. A statement of another level of isolation may not see that the
-- mark has changed, so it writes nothing.
name = 'vote_route'
AND value = {route}
AND current_setting('transaction_isolation') = {level}
--if serializable
AND EXISTS (SELECT FROM hc_mark)
--end

-- name: hold_mark
hc_mark AS MATERIALIZED (
    SELECT
    FROM {meta}
    WHERE name = 'vote_route'
    FOR SHARE
)

-- name: single
-- Writes and counts a vote, and commits by itself: ?1 item, ?2 user, ?3 value, ?4 version. Counts
-- in the journal, or in the cell of slot ?5. Waits for locked rows. Returns one row: 1, TRUE, the
-- columns of {outcome}. Fails if the row that was written has another item or user.
WITH hc_own AS (SELECT 1),
--if serializable
{hold_mark},
--end
--if !foreign_key
-- The foreign key would keep the item until the commit.
hc_item AS MATERIALIZED (
    SELECT
    FROM {item}
    WHERE {id} = {item_of_single}
    FOR KEY SHARE
),
--end
hc_written AS (
    {insert_vote}
    SELECT {item_of_single}, {user_of_single}, CAST(?3 AS bigint), 0, CAST(?4 AS bigint)
    FROM {meta}
    WHERE {comes_this_way} AND {item_exists}
    {or_set}
    RETURNING {vote_item} AS item, {vote_user} AS voter, {previous} AS prev, {value} AS val
),
--if in_slot
hc_counted AS (
    INSERT INTO {cell} (item, slot, n, ver)
    SELECT {item_of_single}, CAST(?5 AS bigint), val - prev, 1
    FROM hc_written WHERE val <> prev
    ON CONFLICT (item, slot) DO UPDATE SET n = {cell}.n + excluded.n, ver = {cell}.ver + 1
)
--else
hc_noted AS (
    INSERT INTO {journal} (item, diff)
    SELECT {item_of_single}, val - prev
    FROM hc_written
    WHERE val <> prev
)
--end
SELECT
    CASE
        WHEN w.item <> {item_of_single} OR w.voter <> {user_of_single} THEN {refuse_other_row}
        ELSE 1
    END,
    TRUE,
    {outcome({item_of_single}, {user_of_single}, {item_exists})}
FROM (SELECT 1) AS one
LEFT JOIN hc_written AS w ON TRUE

-- name: batch
-- Writes and counts the votes of the arrays ?1 to ?4, each row once, sorted by item and user, and
-- commits by itself: ?5 the distinct items, ?6 the fence of write_behind.
--
--   hc_own_votes  the votes, numbered. Triggers recognize the statement by the prefix hc_own
--   hc_free       the items that exist and are not locked: locked ones are skipped, not waited for
--   hc_written    the votes of such items that change, with their old values
--   hc_noted      by how much each item's count moves, in the journal
--
-- cached notes nothing: it reads the epoch of each item, whose row it shares with voters and not
-- with recounts. write_behind locks stream_fence as it was when the votes were taken from their
-- stream, or writes nothing.
--
-- Returns a row for each vote: its number, whether its item was free, the columns of {outcome},
-- then for cached epoch, item, cache id and wide, for write_behind whether the fence stood. A row
-- that is no vote's was changed by a trigger: it fails the statement.
WITH hc_own_votes AS MATERIALIZED (
    SELECT *
    FROM {ballots}
),
--if serializable
{hold_mark},
--end
--if fenced
hc_fence AS MATERIALIZED (
    SELECT
    FROM {meta}
    WHERE name = 'stream_fence' AND value = ?6
    FOR SHARE
),
--end
--if cached
-- The items as the statement's snapshot has them, and as they are once they are locked. If a row
-- was changed between, by a recount for example, the snapshot's epoch may be too old: then the item
-- does not fit, and its votes are written again.
hc_seen AS MATERIALIZED (
    SELECT
        hc_i.{id} AS id, hc_i.xmin AS made,
        COALESCE(hc_s.epoch, 0) AS epoch, COALESCE(hc_s.wide, 0) AS wide
    FROM {state_tables}
    WHERE hc_i.{id} = ANY (CAST(?5 AS {item_element}[]))
),
hc_locked AS MATERIALIZED (
    SELECT {id} AS id, xmin AS made
    FROM {item}
    WHERE {id} = ANY (CAST(?5 AS {item_element}[]))
    ORDER BY {id}
    FOR SHARE SKIP LOCKED
),
hc_free AS MATERIALIZED (
    SELECT s.id, s.epoch, s.wide, s.wide = 0 AND s.made = l.made AS fits
    FROM hc_locked AS l
    JOIN hc_seen AS s ON s.id = l.id
),
--else
hc_free AS MATERIALIZED (
    SELECT {id} AS id
    FROM {item}
    WHERE {id} = ANY (CAST(?5 AS {item_element}[]))
    ORDER BY {id}
    FOR KEY SHARE SKIP LOCKED
),
--end
hc_written AS (
    {insert_vote}
    SELECT b.item, b.voter, b.val, 0, b.version
    FROM hc_own_votes AS b
    JOIN hc_free AS f ON f.id = b.item
    WHERE
--if cached
        f.fits AND
--end
        EXISTS (SELECT FROM {meta} WHERE {comes_this_way})
--if fenced
        AND EXISTS (SELECT FROM hc_fence)
--end
    ORDER BY b.number
    {or_set}
    RETURNING {vote_item} AS item, {vote_user} AS voter, {previous} AS prev, {value} AS val
)
--if !cached
, hc_noted AS (
    INSERT INTO {journal} (item, diff)
    SELECT item, CAST(SUM(val - prev) AS bigint)
    FROM hc_written
    GROUP BY item
    HAVING SUM(val - prev) <> 0
)
--end
SELECT
    COALESCE(b.number, {refuse_other_row}),
    f.id IS NOT NULL,
    {outcome(b.item, b.voter, EXISTS (SELECT FROM {item} AS i WHERE i.{id} = b.item))}
--if cached
    , f.epoch, f.id, {mark('cache_id')}, f.wide
--end
--if fenced
    , CAST(EXISTS (SELECT FROM hc_fence) AS int)
--end
FROM hc_own_votes AS b
LEFT JOIN hc_free AS f ON f.id = b.item
FULL JOIN hc_written AS w ON w.item = b.item AND w.voter = b.voter

-- name: outcome
-- The result of the vote of user {2} for item {1}: the old and the new value, w being the row as it
-- was written. For a vote that was not written, the reason: the old vote's value and version, {3}
-- (whether its item exists), the mark, the level.
w.prev,
w.val,
CASE WHEN w.val IS NULL THEN (SELECT v.{value} {old_vote({1}, {2})}) END,
CASE WHEN w.val IS NULL THEN (SELECT v.{version} {old_vote({1}, {2})}) END,
CASE WHEN w.val IS NULL THEN {3} END,
CASE WHEN w.val IS NULL THEN {mark('vote_route')} END,
CASE WHEN w.val IS NULL THEN current_setting('transaction_isolation') END

-- name: old_vote
FROM {vote} AS v
WHERE v.{vote_item} = {1} AND v.{vote_user} = {2}

-- name: item_of_single
CAST(?1 AS {item_element})

-- name: user_of_single
CAST(?2 AS {user_element})

-- name: item_exists
--if foreign_key
EXISTS (SELECT FROM {item} WHERE {id} = {item_of_single})
--else
EXISTS (SELECT FROM hc_item)
--end

-- name: refuse_other_row
-- A number that fails the statement: the server quotes the text, and explain_postgres_vote() looks
-- for it. Not of constants alone: that would fail already when the statement is planned.
CAST('hc_other_row ' || CAST(w.item AS text) AS bigint)

-- name: set_lock_timeout
-- For this transaction: ?1, in milliseconds.
SELECT set_config('lock_timeout', ?1, TRUE)

-- name: wait_for_items
-- Waits for the rows of the items of the array ?1, in their order, with the lock that batch takes.
SELECT {id}
FROM {item}
WHERE {id} = ANY (CAST(?1 AS {item_element}[]))
ORDER BY {id}
--if cached
FOR SHARE
--else
FOR KEY SHARE
--end

-- name: create_items
-- Adds the items of the array ?1 that do not exist, in order.
INSERT INTO {item} ({id})
SELECT id
FROM unnest(CAST(?1 AS {item_element}[])) AS id
ORDER BY id
ON CONFLICT DO NOTHING

-- name: delete_without_user
-- Deletes at most ?3 votes for item ?1 of value ?2 without a user. Such votes are alike. The
-- condition stands twice because partitions have the same ctids.
WITH hc_own AS (SELECT 1)
DELETE FROM {vote}
WHERE
    ctid = ANY (ARRAY(SELECT ctid FROM {vote} WHERE {votes_without_user} LIMIT ?3 FOR UPDATE))
    AND {votes_without_user}
