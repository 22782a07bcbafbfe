-- strategy cached on PostgreSQL: pages of items as arrays, each page in one statement.
--
-- Locks: the marks (shared), the items, then their rows of {sync}, each in the order of ids.

-- name: lock
-- Locks the items of the array ?1 and their rows of {sync}. Not FOR UPDATE, which also waits for
-- sessions that have inserted a vote: two of them would wait for each other.
WITH hc_items AS MATERIALIZED (
    SELECT {id} AS id
    FROM {item}
    WHERE {id} = ANY (CAST(?1 AS {item_element}[]))
    ORDER BY {id}
    FOR NO KEY UPDATE
),
hc_marks AS MATERIALIZED (
    SELECT 1
    {marks_of_items}
)
SELECT count(*)
FROM hc_marks

-- name: marks_of_items
-- As they are once they are locked.
FROM {sync}
WHERE item = ANY (ARRAY(SELECT id FROM hc_items))
ORDER BY item
FOR NO KEY UPDATE

-- name: read
-- The number and the state of each item of the array ?1 that exists.
SELECT hc_p.number, {state_columns}
FROM unnest(CAST(?1 AS {item_element}[])) WITH ORDINALITY AS hc_p (item, number)
JOIN ({state_tables}) ON hc_i.{id} = hc_p.item

-- name: fence
-- Raises the gen of the items of the array ?1 for holder ?2, if the tables count under the cache id
-- ?3; commits by itself. Locks the items' rows of {sync}. The snapshot is older than the locks, but
-- its count of an item is right if the row of {sync} has not been saved or recounted since: every
-- transaction that writes the count writes that row too. Requests a recount of an item that another
-- holder has left. Returns number, item, gen, epoch, count and whether that count is right.
WITH hc_items AS MATERIALIZED (
    SELECT
        hc_p.number, hc_i.{id} AS id, COALESCE(hc_i.{count}, 0) AS stored,
        COALESCE(hc_s.epoch, 0) AS epoch, COALESCE(hc_s.saved_gen, 0) AS saved_gen,
        COALESCE(hc_s.saved_version, 0) AS saved_version
    FROM unnest(CAST(?1 AS {item_element}[])) WITH ORDINALITY AS hc_p (item, number)
    JOIN ({state_tables}) ON hc_i.{id} = hc_p.item
    WHERE EXISTS (SELECT FROM {meta} WHERE name = 'cache_id' AND value = ?3)
),
hc_marks AS MATERIALIZED (
    SELECT item, holder
    {marks_of_items}
),
hc_fenced AS (
    INSERT INTO {sync} AS hc_t (item, gen, holder)
    SELECT i.id, 1, ?2
    FROM hc_items AS i
    LEFT JOIN hc_marks AS m ON m.item = i.id
    ORDER BY i.id
    ON CONFLICT (item) DO UPDATE SET gen = hc_t.gen + 1, holder = excluded.holder
    RETURNING item, gen, epoch, saved_gen, saved_version
),
-- The holder in a row that is newer than the snapshot is unknown.
hc_asked AS (
    INSERT INTO {recount} AS hc_r (item, asked)
    SELECT f.item, 1
    FROM hc_fenced AS f
    LEFT JOIN hc_marks AS m ON m.item = f.item
    WHERE
        CASE
            WHEN m.item IS NULL THEN f.gen > 1
            ELSE m.holder <> '' AND m.holder <> ?2
        END
    ORDER BY f.item
    ON CONFLICT (item) DO UPDATE SET asked = hc_r.asked + 1
)
SELECT
    i.number, i.id, f.gen, i.epoch, i.stored,
    CAST(
        f.epoch = i.epoch AND f.saved_gen = i.saved_gen AND f.saved_version = i.saved_version
        AS int
    )
FROM hc_items AS i
JOIN hc_fenced AS f ON f.item = i.id

-- name: save
-- Saves each count of a page whose epoch and gen are its item's and that is newer than the saved
-- count, as SyncTable::outcome_of() says; commits by itself. Arrays: ?1 items, ?2 counts, ?3 gens,
-- ?4 versions, ?5 epochs. ?6 the cache id. Returns for each its number, whether the tables still
-- count under that id, the item, its count, epoch, gen, saved gen and saved version as they were,
-- and whether another session held it.
WITH hc_place AS MATERIALIZED (
    SELECT name, value
    FROM {meta}
    WHERE name IN ('counted_in', 'cache_id')
    ORDER BY name
    FOR SHARE
),
hc_there AS MATERIALIZED (
    SELECT count(*) = 2 AS ok
    FROM hc_place
    WHERE (name = 'counted_in' AND value = 'cache') OR (name = 'cache_id' AND value = ?6)
),
hc_p AS MATERIALIZED (
    SELECT *
    FROM unnest(
        CAST(?1 AS {item_element}[]), CAST(?2 AS bigint[]), CAST(?3 AS bigint[]),
        CAST(?4 AS bigint[]), CAST(?5 AS bigint[])
    ) WITH ORDINALITY AS hc_u (item, n, gen, version, epoch, number)
),
hc_items AS MATERIALIZED (
    SELECT {id} AS id, COALESCE({count}, 0) AS stored
    FROM {item}
    WHERE {id} = ANY (CAST(?1 AS {item_element}[])) AND (SELECT ok FROM hc_there)
    ORDER BY {id}
--if waits
    FOR NO KEY UPDATE
--else
    FOR NO KEY UPDATE SKIP LOCKED
--end
),
hc_marks AS MATERIALIZED (
    SELECT item, epoch, gen, saved_gen, saved_version
    {marks_of_items}
),
hc_taken AS MATERIALIZED (
    SELECT p.item, p.n, p.gen, p.version
    FROM hc_p AS p
    JOIN hc_items AS i ON i.id = p.item
    JOIN hc_marks AS m ON m.item = p.item
    WHERE
        m.epoch = p.epoch
        AND m.gen = p.gen
        AND NOT (m.saved_gen = p.gen AND m.saved_version >= p.version)
),
hc_counted AS (
    UPDATE {item} AS hc_i SET {count} = hc_p.n
    FROM hc_taken AS hc_p
    WHERE hc_i.{id} = hc_p.item
),
hc_saved AS (
    UPDATE {sync} AS hc_s SET saved_gen = t.gen, saved_version = t.version
    FROM hc_taken AS t
    WHERE hc_s.item = t.item
)
SELECT
    p.number, CAST(h.ok AS int), i.id, i.stored,
    COALESCE(m.epoch, 0), COALESCE(m.gen, 0), COALESCE(m.saved_gen, 0),
    COALESCE(m.saved_version, 0),
    CAST(i.id IS NULL AND EXISTS (SELECT FROM {item} AS o WHERE o.{id} = p.item) AS int)
FROM hc_p AS p
CROSS JOIN hc_there AS h
LEFT JOIN hc_items AS i ON i.id = p.item
LEFT JOIN hc_marks AS m ON m.item = p.item

-- name: set_counts
-- Writes the counts of a page: the arrays ?1 to ?4 of save.
UPDATE {item} AS hc_i SET {count} = hc_p.n
FROM unnest(
    CAST(?1 AS {item_element}[]), CAST(?2 AS bigint[]), CAST(?3 AS bigint[]),
    CAST(?4 AS bigint[])
) AS hc_p (item, n, gen, version)
WHERE hc_i.{id} = hc_p.item

-- name: sums
-- The number and the counted sum of each item of the array ?1.
SELECT hc_p.number, {owed(hc_p.item)}
FROM unnest(CAST(?1 AS {item_element}[])) WITH ORDINALITY AS hc_p (item, number)
