-- Votes on MariaDB and MySQL, of one vote table: rows in a transaction, and a vote alone.
--
-- A row keeps its old value in itself, under its lock: an upsert sets {previous} = {value}, and a
-- read in the same transaction returns both. Locks go in the order mark, item, vote, cell.

-- name: route
-- The route of votes. Locks its mark until the commit, shared.
(SELECT value FROM {meta} WHERE name = 'vote_route' LOCK IN SHARE MODE)

-- name: lock_item
-- Locks item ?1 until the commit, and the mark, shared. Returns the route of votes; no row if there
-- is no such item.
SELECT {route}
FROM {item}
WHERE {id} = ?1
FOR UPDATE

-- name: keep_item
-- Keeps item ?1 there until the commit, shared. Returns its id.
SELECT {id}
FROM {item}
WHERE {id} = ?1
LOCK IN SHARE MODE

-- name: keys
-- MySQL: the indexes of the vote table, a row for each column.
SHOW INDEX FROM {vote}

-- name: lock_held
-- MySQL: locks the existing votes (?1 item, ?2 user). Fails with 3572 (ER_LOCK_NOWAIT) if another
-- transaction has locked one of them or is inserting it. {key}: the unique key of item and user; a
-- scan of a small table would meet locked votes of other keys.
SELECT 1
FROM {vote}
--if key
    FORCE INDEX ({key})
--end
WHERE
--each OR
    ({vote_item} = ?1 AND {vote_user} = ?2)
--end
FOR UPDATE NOWAIT

-- name: upsert
-- Writes votes: ?1 item, ?2 user, ?3 value, ?4 version. Locks their rows, and the items they refer
-- to, shared. A new row counts 1, a changed one 2, another one 0.
--if !waits
-- A batch does not wait for one held row, because its other votes matter more. MariaDB only.
/*M!100603 SET STATEMENT innodb_lock_wait_timeout = 0 FOR */
--end
INSERT INTO {vote} ({vote_item}, {vote_user}, {value}, {previous}, {version})
VALUES
--each ,
    (?1, ?2, ?3, 0, ?4)
--end
{on_duplicate}

-- name: on_duplicate
-- How a vote is written over the one that is there. Assignments are evaluated from left to right:
-- the second one sees the result of the first. A row with a version is changed only by a higher
-- one, or by a vote without; comparing with NULL is not true.
ON DUPLICATE KEY UPDATE
    {vote}.{previous} = {vote}.{value},
    {vote}.{value} = IF(VALUES({version}) <= {vote}.{version}, {vote}.{value}, VALUES({value})),
    {vote}.{version} = IF(
        VALUES({version}) <= {vote}.{version},
        {vote}.{version},
        COALESCE(VALUES({version}), {vote}.{version}))

-- name: read
-- The votes (?1 item, ?2 user): item, user, previous value, value. Not (item, user) IN (...), for
-- which MariaDB reads the whole table.
SELECT {vote_item}, {vote_user}, {previous}, {value}
FROM {vote}
WHERE
--each OR
    ({vote_item} = ?1 AND {vote_user} = ?2)
--end

-- name: read_of_item
-- As read, for item ?1 and the users ?2, in a third of the time.
SELECT {vote_item}, {vote_user}, {previous}, {value}
FROM {vote}
WHERE {vote_item} = ?1
    AND {vote_user} IN ({list(?2)})

-- name: vote_alone
-- MariaDB: vote and count in one trip, and COMMIT. ?1 item, ?2 user, ?3 value, ?4 version, ?5 slot
-- of the cell if {slotted}. Returns nothing for a new vote, the old and the new value for one that
-- was there, and NULLs if nothing was done: the route is another one, or the item is missing or,
-- unless {slotted}, held. If a slotted vote's table refers to the items, its foreign key finds a
-- missing one. The upsert locks the row, so a later read without a lock sees the row that the
-- upsert wrote. A variable hides a column of the same name, hence the prefix.
BEGIN NOT ATOMIC
    DECLARE hotcount_was BIGINT;
    DECLARE hotcount_is BIGINT;
    INSERT INTO {vote} ({vote_item}, {vote_user}, {value}, {previous}, {version})
    SELECT ?1, ?2, ?3, 0, ?4
    FROM DUAL
    WHERE {route} = {wanted_route}
--if !slotted
        AND EXISTS (SELECT 1 FROM {item} WHERE {id} = ?1 LOCK IN SHARE MODE SKIP LOCKED)
--else
--if looks_for_item
        AND EXISTS (SELECT 1 FROM {item} WHERE {id} = ?1 LOCK IN SHARE MODE)
--end
--end
    {on_duplicate};
    CASE ROW_COUNT()
        WHEN 1 THEN
            IF ?3 <> 0 THEN
                {count_alone(?3)}
            END IF;
            COMMIT;
        WHEN 2 THEN
            SELECT {previous}, {value}
            INTO hotcount_was, hotcount_is
            FROM {vote}
            WHERE {vote_item} = ?1 AND {vote_user} = ?2;
            IF hotcount_was <> hotcount_is THEN
                {count_alone(hotcount_is - hotcount_was)}
            END IF;
            SELECT hotcount_was, hotcount_is;
            COMMIT;
        ELSE
            SELECT NULL, NULL;
            ROLLBACK;
    END CASE;
END

-- name: count_alone
-- Adds {1} to the count of item ?1.
--if slotted
UPDATE {cell}
SET n = n + ({1}), ver = ver + 1
WHERE item = ?1 AND slot = ?5;
IF ROW_COUNT() = 0 THEN
    INSERT INTO {cell} (item, slot, n, ver)
    VALUES (?1, ?5, {1}, 1)
    ON DUPLICATE KEY UPDATE n = n + VALUES(n), ver = ver + 1;
END IF;
--else
INSERT INTO {journal} (item, diff) VALUES (?1, {1});
--end
