-- The statements of a vote in a transaction of the application's own. They count in the same rows
-- as the library's own at once, so they take the same locks in the same order: the mark, item,
-- vote, cell. Their parameters, ?1 and up, get names in session_statements.cpp.

-- == The mark ==

-- name: look
-- How votes get to the tables, whether item ?1 exists, and the transaction's isolation. Locks
-- nothing.
SELECT value, {item_exists}, current_setting('transaction_isolation')
FROM {meta}
WHERE name = 'vote_route'

-- name: hold_route
-- How votes get to the tables, which stays so until the transaction ends; whether item ?1 exists;
-- the session's mode.
SELECT value, {item_exists}, {session_mode}
FROM {meta}
WHERE name = 'vote_route'
{for_share}

-- name: item_exists
-- 1 if item ?1 exists or a later statement would find it missing, else NULL. A session may have
-- switched its foreign keys off, as loads and replication do.
--if creates
{found_item}
--else
--if locks_item
1
--else
CASE WHEN {checks_foreign_keys} THEN 1 ELSE {found_item} END
--end
--end
-- name: found_item
(SELECT 1 FROM {item} WHERE {id} = ?1)

-- == The item ==

-- name: add_item
-- Inserts item ?1. Where an upsert locks an existing row, which would block all other transactions,
-- the insert fails instead.
INSERT INTO {item} ({id})
VALUES (?1)
--if !or_nothing_locks
{or_nothing({id})}
--end

-- name: lock_item
-- Locks item ?1 against transactions that would deadlock with this one. Or, if no foreign key
-- refuses a vote for an item that does not exist, makes sure that it exists: SQLite checks foreign
-- keys only if its connection was told to. Returns a row if the item exists.
SELECT 1
FROM {item}
WHERE {id} = ?1
--if alone
{for_update}
--else
{for_key_share}
--end

-- == The vote ==

-- name: write_vote
-- Sets the vote of user ?2 for item ?1 to value ?3 with version ?4. Locks its row. Returns the
-- value before and after, if the dialect has RETURNING.
{insert_vote}
VALUES (?1, ?2, ?3, 0, ?4)
{upsert}
--if has_returning
RETURNING {previous}, {value}
--end

-- name: insert_vote
INSERT INTO {vote} ({vote_item}, {vote_user}, {value}, {previous}, {version})

-- name: upsert
-- The row keeps its old value. MySQL evaluates assignments from left to right, so a column on which
-- others depend is assigned after them.
{or_update({vote_item}, {vote_user})}
{previous} = {vote}.{value},
{value} = CASE WHEN {applies} THEN {excluded({value})} ELSE {vote}.{value} END,
{version} = CASE
    WHEN {applies} THEN COALESCE({excluded({version})}, {vote}.{version}) ELSE {vote}.{version}
END
-- name: applies
(
    {excluded({version})} IS NULL OR {vote}.{version} IS NULL
    OR {vote}.{version} < {excluded({version})}
)

-- name: write_and_note
-- The vote and its journal row in one statement. A transaction that moves the counts waits for
-- every transaction that has written votes, and a statement that waited for it reads its snapshot
-- after its commit. So the mark needs no lock, except at isolation levels whose snapshot is the
-- transaction's. Returns the value before and after; no row if the tables have another vote route.
WITH hc_own AS (SELECT 1), w AS (
    {insert_vote}
    SELECT {typed(?1, {item_parameter})}, {typed(?2, {user_parameter})}, {typed(?3, bigint)}, 0,
    {typed(?4, bigint)}
    FROM {meta}
    WHERE name = 'vote_route' AND value = {route}
    {upsert}
    RETURNING {previous} AS prev, {value} AS val
), noted AS (
    INSERT INTO {journal} (item, diff)
    SELECT {typed(?1, {item_parameter})}, val - prev FROM w WHERE val <> prev
)
SELECT prev, val FROM w

-- name: read_vote
-- Reads the row that write_vote wrote, without RETURNING. The upsert has locked the row already,
-- and a locking read returns its present state. A plain read under REPEATABLE READ would return the
-- row of the transaction's snapshot, unless the upsert has changed it.
SELECT {previous}, {value}
FROM {vote}
WHERE {vote_item} = ?1 AND {vote_user} = ?2
{for_update}

-- == The count ==

-- name: note
-- Counts the difference ?2 for item ?1 in the journal.
INSERT INTO {journal} (item, diff) VALUES (?1, ?2)

-- name: find_cell
-- Whether item ?1 has a cell of slot ?2, and the session's mode.
SELECT (SELECT 1 FROM {cell} WHERE item = ?1 AND slot = ?2), {session_mode}

-- name: bump_cell
-- Adds {difference}, which is ?1 unless triggers count the vote, to the cell ?3 of item ?2.
UPDATE {cell}
SET n = {checked_sum(n, {difference})}, ver = ver + 1
WHERE item = ?2 AND slot = ?3
-- name: insert_cell
-- The same, and inserts the cell if it does not exist.
INSERT INTO {cell} (item, slot, n, ver)
VALUES (?2, ?3, {difference}, 1)
{or_update(item, slot)}
n = {checked_sum({cell}.n, {excluded(n)})}, ver = {cell}.ver + 1

-- name: bump_item
-- Adds {difference} to the own count of item ?2.
UPDATE {item}
SET {count} = {checked_sum({count}, {difference})}
WHERE {id} = ?2

-- name: ask_recount
-- Asks for a recount of item ?1.
INSERT INTO {recount} (item, asked)
VALUES (?1, 1)
{or_update(item)}
asked = {recount}.asked + 1

-- == Reads ==

-- name: count_in_item
-- The count of item ?1.
SELECT {own_count({item})} FROM {item} WHERE {id} = ?1
-- name: count_in_cells
SELECT COALESCE(SUM(n), 0) FROM {cell} WHERE item = ?1
-- name: count_in_journal
SELECT {cells(?1)} + {pending(?1)}
-- name: count_in_cache
SELECT {owed_in(?1, )}

-- name: votes
-- The votes of user ?1 for the list ?2 of items. A LIMIT of its own, because a session of MySQL
-- may have sql_select_limit.
SELECT {vote_item}, {value}
FROM {vote}
WHERE {vote_user} = ?1 AND {vote_item} IN ?2
LIMIT 9223372036854775807
