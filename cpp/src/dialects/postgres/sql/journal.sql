-- The journal on PostgreSQL: the table, its locks, and the fold.
--
-- Names of CTEs begin with hc_: another name could hide a table of the application.

-- name: fold
-- One fold, in a transaction of its own. ?1 the items to leave out, or with {only} the items to
-- fold; ?2 1 to fold only if a fold is due; ?3 the least pause in microseconds; ?4 the most rows;
-- ?5 the least pause as a multiple of the last fold's duration: the longer pause applies.
--
--   hc_pace, hc_due  whether the journal is the place of the counts, and the time until a fold is
--                    due: 0 if the last fold is in the future, because the server's clock went back
--   hc_alone         the fold's advisory lock, until the transaction ends: tried, not waited for
--   hc_marks         the marks again, locked and so as of now: the snapshot may be older than the
--                    advisory lock
--   hc_here          a row if no other fold has committed in between. The snapshot would show the
--                    rows that it took, but neither what it put back nor the cells that it summed
--   hc_page, hc_gone a page of journal rows, deleted
--   hc_moved         the sums of those rows, added to the cells of the fold's slot
--   hc_totals        the items' counts: the sums of all cells. Cells of other slots are as of the
--                    snapshot: only strategy slotted writes them, and other readers see the same
--   hc_free          the items whose rows are not locked; hc_shown updates their own counts
--   hc_again         the items whose rows are locked: appended to the journal again
--   hc_paced         the start and the duration of this fold, for all processes
--
-- No two CTEs of many rows are joined. VACUUM has found the journal empty, so the planner expects
-- one row in each CTE and would choose a nested loop: 2 to 3 s for 2,300 items. An IN inside an IS
-- is a hash lookup, whatever row count the planner expects.
--
-- Returns one row 0, NULL, outcome, number; a row 1, item, count, version for each item folded; and
-- a row 2, item, 0, 0 for each item whose row is locked. Outcome: 0 folded, 1 another fold runs or has
-- just ended, or the mark is locked (number: rows deleted), 2 not due (number: microseconds until
-- then), 3 the counts are in another place.
WITH hc_clock AS MATERIALIZED (
    SELECT {now_microseconds} AS us
),
hc_pace AS MATERIALIZED (
    SELECT
        us,
        {mark('counted_in')} = 'journal' AS here,
        {mark('folded_at')} AS folded,
        COALESCE(CAST({mark('folded_at')} AS bigint), 0) AS last,
        COALESCE(CAST({mark('fold_took')} AS bigint), 0) AS took
    FROM hc_clock
),
hc_due AS MATERIALIZED (
    SELECT
        here,
        CASE
            WHEN last > us THEN 0
            ELSE last + GREATEST(
                CAST(?3 AS bigint), LEAST(CAST(?5 AS bigint) * took, {longest_pause})
            ) - us
        END AS wait
    FROM hc_pace
),
hc_alone AS MATERIALIZED (
    SELECT
        CASE
            WHEN here AND (CAST(?2 AS bigint) = 0 OR wait <= 0)
            THEN pg_try_advisory_xact_lock({fold_lock})
        END AS mine
    FROM hc_due
),
hc_marks AS MATERIALIZED (
    SELECT name, value
    FROM {meta}
    WHERE name IN ('counted_in', 'folded_at') AND (SELECT mine FROM hc_alone)
    FOR SHARE SKIP LOCKED
),
hc_here AS MATERIALIZED (
    SELECT
    FROM hc_pace
    WHERE
        (SELECT value FROM hc_marks WHERE name = 'counted_in') = 'journal'
        AND (SELECT value FROM hc_marks WHERE name = 'folded_at') IS NOT DISTINCT FROM folded
),
hc_page AS MATERIALIZED (
    SELECT ctid AS place
    FROM {journal}
    WHERE
        EXISTS (SELECT FROM hc_here)
--if only
        AND item = ANY (CAST(?1 AS {item_element}[]))
--else
        AND item <> ALL (CAST(?1 AS {item_element}[]))
--end
    LIMIT CAST(?4 AS bigint)
),
hc_gone AS (
    DELETE FROM {journal}
    WHERE
        ctid >= (SELECT MIN(place) FROM hc_page)
        AND ctid <= (SELECT MAX(place) FROM hc_page)
        AND (ctid IN (SELECT place FROM hc_page)) IS TRUE
    RETURNING item, diff
),
hc_sums AS MATERIALIZED (
    SELECT item, CAST(SUM(diff) AS bigint) AS d
    FROM hc_gone
    GROUP BY item
),
hc_moved AS (
    INSERT INTO {cell} (item, slot, n, ver)
    SELECT item, {fold_slot}, d, us
    FROM hc_sums, hc_clock
    ORDER BY item
    ON CONFLICT (item, slot) DO UPDATE SET
        n = {cell}.n + excluded.n,
        ver = GREATEST({cell}.ver + 1, excluded.ver)
    RETURNING item, n, ver
),
hc_totals AS MATERIALIZED (
    SELECT
        m.item,
        CAST(m.n + COALESCE((
            SELECT SUM(o.n) FROM {cell} AS o WHERE o.item = m.item AND o.slot <> {fold_slot}
        ), 0) AS bigint) AS n,
        m.ver
    FROM hc_moved AS m
),
--if has_count
hc_free AS MATERIALIZED (
    SELECT {id} AS id
    FROM {item}
    WHERE {id} IN (SELECT item FROM hc_sums)
    ORDER BY {id}
    FOR NO KEY UPDATE SKIP LOCKED
),
hc_shown AS (
    UPDATE {item} AS i SET {count} = t.n
    FROM hc_totals AS t
    WHERE i.{id} = t.item AND (t.item IN (SELECT id FROM hc_free)) IS TRUE
    RETURNING t.item
),
hc_again AS (
    INSERT INTO {journal} (item, diff)
    SELECT s.item, 0
    FROM hc_sums AS s
    WHERE
        (s.item IN (SELECT id FROM hc_free)) IS NOT TRUE
        AND EXISTS (SELECT FROM {item} AS i WHERE i.{id} = s.item)
    RETURNING item
),
--end
hc_took AS MATERIALIZED (
    SELECT {now_microseconds} - us AS us
    FROM hc_clock
    WHERE (SELECT COUNT(*) FROM hc_totals)
--if has_count
        + (SELECT COUNT(*) FROM hc_shown) + (SELECT COUNT(*) FROM hc_again)
--end
        >= 0
),
hc_paced AS (
    UPDATE {meta} AS m SET
        value = CASE m.name WHEN 'folded_at' THEN CAST(c.us AS text) ELSE CAST(t.us AS text) END
    FROM hc_clock AS c, hc_took AS t
    WHERE m.name IN ('folded_at', 'fold_took') AND EXISTS (SELECT FROM hc_gone)
)
SELECT
    0,
    (SELECT item FROM hc_sums LIMIT 0),
    CASE
        WHEN here IS NOT TRUE THEN 3
        WHEN CAST(?2 AS bigint) <> 0 AND wait > 0 THEN 2
        WHEN NOT EXISTS (SELECT FROM hc_here) THEN 1
        ELSE 0
    END,
    CASE
        WHEN here AND CAST(?2 AS bigint) <> 0 AND wait > 0 THEN wait
        ELSE (SELECT COUNT(*) FROM hc_gone)
    END
FROM hc_due
UNION ALL
SELECT 1, item, n, ver
FROM hc_totals
--if has_count
UNION ALL
SELECT 2, item, 0, 0
FROM hc_again
--end

-- name: ask
-- Requests new counts of the items of the array ?1: appends a row (item, 0) for each, if the
-- journal is the place of the counts.
INSERT INTO {journal} (item, diff)
SELECT {id}, 0
FROM {item}
WHERE
    {id} = ANY (CAST(?1 AS {item_element}[]))
    AND {mark('counted_in')} = 'journal'

-- name: items
-- Up to ?1 items that have journal rows.
SELECT DISTINCT item
FROM {journal}
ORDER BY item
LIMIT ?1

-- name: may_vacuum
-- Whether this role may vacuum the table ?1. Without the right, each attempt would write a warning
-- into the server's log.
SELECT CAST(pg_has_role(relowner, 'USAGE') AS int)
FROM pg_class
WHERE oid = to_regclass(CAST(?1 AS text))

-- name: vacuum
-- Skipped while another session vacuums the table. Truncating would take an exclusive lock, which
-- blocks readers.
VACUUM (TRUNCATE FALSE, SKIP_LOCKED) {journal}

-- name: journal_table
-- The index is for exact reads. The sum over one item of 7,000 pending rows takes 30 us with it and
-- 300 us without; 64 votes for 64 items take 8 % more server time with it (PostgreSQL 15).
-- CREATE INDEX IF NOT EXISTS would lock the table before it looks. Logical replication needs the
-- replica identity, because the table has no key that identifies a deleted row.
CREATE TABLE IF NOT EXISTS {journal} (
    item {item_type} NOT NULL,
    diff BIGINT NOT NULL
);
DO $hotcount$ BEGIN
    IF to_regclass({journal_index_literal}) IS NULL THEN
        CREATE INDEX {journal_index_name} ON {journal} (item);
    END IF;
    IF (SELECT relreplident <> 'f' FROM pg_class WHERE oid = {journal_regclass}) THEN
        ALTER TABLE {journal} REPLICA IDENTITY FULL;
    END IF;
END $hotcount$;

-- name: journal_regclass
-- The OID of the journal.
CAST({journal_literal} AS regclass)

-- name: fold_lock
-- The two keys of the fold's advisory lock. One is the journal's OID, so that two sets of tables in
-- one database do not block each other.
CAST(CAST({journal_regclass} AS oid) AS int), 1

-- name: lock_fold
SELECT pg_advisory_xact_lock({fold_lock});

-- name: lock_votes
-- Blocks votes and changes of the counts' place until the commit. The marks are locked first: a
-- transaction that holds a mark has not touched the votes yet.
SELECT value FROM {meta} ORDER BY name FOR UPDATE;
LOCK TABLE {vote}, {anonymous_vote} IN SHARE ROW EXCLUSIVE MODE;

-- name: lock_items
LOCK TABLE {item} IN SHARE ROW EXCLUSIVE MODE

-- name: fill
-- Counts the votes of tables that hotcount has not counted before into the journal, and writes the
-- marks: in one statement, and so from one snapshot. Blocks no voter.
BEGIN ISOLATION LEVEL READ COMMITTED;
{lock_fold}
WITH
--if openings
hc_kept AS ({openings}),
--end
hc_noted AS ({rows})
{marks};
COMMIT;
