-- The transaction of a batch of votes, beside the votes themselves (vote_rows.sql).

-- name: route
-- The route of votes. Locks its mark until the commit, shared: a read without a lock may return the
-- route before a change of strategy.
(SELECT value FROM {meta} WHERE name = 'vote_route' LOCK IN SHARE MODE)

-- name: look
-- Locks the mark and then the items ?1, in order, both with a shared lock, as a foreign key's check
-- does. Returns the ids of the locked items; no row if the route is another one. Items that another
-- transaction has locked are skipped; with {waits}, it waits for them, and fails after {wait_ms}
-- with 1969 (MariaDB) or 3024 (MySQL): WAIT would take whole seconds. MariaDB reads the first form
-- of the lock and ignores the second, MySQL the other way round.
--if waits
/*M! SET STATEMENT max_statement_time = 0.{wait_ms} FOR */
SELECT /*+ MAX_EXECUTION_TIME({wait_ms}) */ {id}
--else
SELECT {id}
--end
FROM {item}
WHERE {route} = {wanted_route}
    AND {id} IN ({list(?1)})
ORDER BY {id}
--if waits
LOCK IN SHARE MODE
--else
/*M! LOCK IN SHARE MODE */ /*!80001 FOR SHARE */ SKIP LOCKED
--end

-- name: exist
-- Which of the items ?1 exist. Locks nothing.
SELECT {id}
FROM {item}
WHERE {id} IN ({list(?1)})

-- name: note
-- Adds journal rows: ?1 item, ?2 by how much its count moves. Not INSERT ... SELECT, which takes
-- the table's AUTO-INC lock.
INSERT INTO {journal} (item, diff)
VALUES
--each ,
    (?1, ?2)
--end

-- name: note_and_commit
-- MariaDB: note, and COMMIT. Locks the mark, which a transaction that moves the counts holds until
-- its commit. If the route is another one it returns a row and rolls back.
BEGIN NOT ATOMIC
    IF {route} = {wanted_route} THEN
        {note};
        COMMIT;
    ELSE
        SELECT 1;
        ROLLBACK;
    END IF;
END

-- name: counts_here
-- Strategy cached: the route is the wanted one, and no sum of the items ?1 is to be checked.
{route} = {wanted_route}
AND NOT EXISTS (
    SELECT 1
    FROM {sync}
    WHERE wide <> 0 AND item IN ({list(?1)}))

-- name: epochs_of_items
, COALESCE(hc_s.epoch, 0), hc_i.{id}, (SELECT value FROM {meta} WHERE name = 'cache_id')
FROM {state_tables}
WHERE hc_i.{id} IN ({list(?1)})
ORDER BY hc_i.{id}

-- name: epochs
-- The items ?1, which are locked: whether their counts are here, epoch, id, cache id. Locks the
-- mark and their rows of {sync}, shared, which blocks recounts. OF: MySQL may scan a small table of
-- items, and would wait for items that other transactions have locked.
SELECT {counts_here} {epochs_of_items}
FOR SHARE OF hc_s

-- name: epochs_and_commit
-- MariaDB: epochs, and COMMIT. Returns FALSE alone, and rolls back, if the counts are not here.
BEGIN NOT ATOMIC
    IF {counts_here} THEN
        SELECT TRUE {epochs_of_items}
        LOCK IN SHARE MODE;
        COMMIT;
    ELSE
        SELECT FALSE;
        ROLLBACK;
    END IF;
END
