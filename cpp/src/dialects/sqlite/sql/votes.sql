-- Votes on SQLite, of one vote table. A transaction is the only writer: no statement locks
-- anything.
--
-- No upsert returns what it wrote: SQLite opens a statement journal for such an upsert, with an
-- allocation of 64 KB each, which took about half of the time of writing votes.

-- name: read
-- The vote of user ?2 for item ?1: value and version.
SELECT {value}, {version}
FROM {vote}
WHERE {vote_item} = ?1 AND {vote_user} = ?2

-- name: insert
-- A new vote: ?1 item, ?2 user, ?3 value, ?4 version.
INSERT INTO {vote} ({vote_item}, {vote_user}, {value}, {previous}, {version})
VALUES (?1, ?2, ?3, 0, ?4)

-- name: update
-- Updates an existing vote; same parameters as insert. A version of NULL keeps the row's.
UPDATE {vote}
SET {previous} = {value}, {value} = ?3, {version} = COALESCE(?4, {version})
WHERE {vote_item} = ?1 AND {vote_user} = ?2

-- name: find_item
-- A row if item ?1 exists.
SELECT 1
FROM {item}
WHERE {id} = ?1

-- name: delete_without_user
-- Deletes up to ?3 of {votes_without_user}.
DELETE FROM {vote}
WHERE rowid IN (
    SELECT rowid
    FROM {vote}
    WHERE {votes_without_user}
    LIMIT ?3)

-- name: takes_ids_for_equal
-- Whether a column of ids compares without case, or without spaces at the end.
SELECT
    {is_equal({id}, {item})}
    OR {is_equal({vote_item}, {vote})}
    OR {is_equal({vote_user}, {vote})}

-- name: item_type
-- The type of columns that compare ids as the item table does; '' if it compares their bytes. A part
-- of a UNION ALL compares as the columns of the first part do.
SELECT
    CASE
        WHEN hc_i.id = 'A' THEN 'TEXT COLLATE NOCASE'
        WHEN hc_i.id = 'a ' THEN 'TEXT COLLATE RTRIM'
        ELSE ''
    END
FROM (SELECT {id} AS id FROM {item} WHERE FALSE UNION ALL SELECT 'a') AS hc_i

-- name: is_equal
-- A part of a UNION ALL compares as the columns of the first part do.
EXISTS (
    SELECT 1
    FROM (SELECT {1} AS id FROM {2} WHERE FALSE UNION ALL SELECT 'a')
    WHERE id IN ('A', 'a '))
