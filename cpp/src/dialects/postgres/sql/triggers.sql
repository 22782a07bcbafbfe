-- Triggers of the vote tables on PostgreSQL, which count the rows that others write.
--
-- Our own INSERTs and DELETEs begin with WITH hc_own (Grammar::own_write()), and the triggers look
-- for that at the beginning of the text that the client sent: no data can stand there. So the mark
-- covers one statement, whatever pooler stands between, and costs nothing where there are no
-- triggers. Below another trigger (a cascade, or one of the application's) a row is always counted.
--
-- The triggers' WHEN tests each row before an event is queued, so a vote costs one test. Transition
-- tables would be filled for hotcount's own statements too; only the trigger for DELETE has one,
-- because a vote never deletes. On a partitioned table a cascade deletes from the partition itself,
-- where a statement trigger of the parent does not run: there every trigger is a row trigger.

-- name: lock_tables
-- DROP TRIGGER takes this lock. Taking it first avoids the deadlock of a lock upgrade with sessions
-- that read and then write. All sessions queue behind the lock, so the wait is limited.
SET LOCAL lock_timeout = '2s';
LOCK TABLE {vote}, {anonymous_vote} IN ACCESS EXCLUSIVE MODE;

-- name: function
-- Gathers the changes of a statement or a row as arrays of items, in their order, and of
-- differences, and counts them in the place that the mark names. SECURITY DEFINER, because a role
-- that writes votes may lack rights on the journal. No other role may create a trigger with it, and
-- it looks names up in pg_catalog first.
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
AS $hotcount$
/* -- hotcount: counts what others write */
DECLARE
    hc_place text;
    hc_items {item_element}[];
    hc_diffs bigint[];
BEGIN
    IF TG_LEVEL = 'ROW' THEN
        {changes({changed_row})} INTO hc_items, hc_diffs;
    ELSIF TG_OP = 'DELETE' THEN
        {changes({removed_from(hc_old)})} INTO hc_items, hc_diffs;
    ELSE
        -- TRUNCATE removes rows that an older snapshot does not have.
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'TRUNCATE of votes that hotcount counts needs READ COMMITTED'
                USING ERRCODE = '0A000';
        END IF;
        EXECUTE format($hotcount_changes${changes({removed_from(%s)})}$hotcount_changes$, CAST(TG_RELID AS regclass))
            INTO hc_items, hc_diffs;
    END IF;
    IF hc_items IS NULL THEN
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') = 'read committed' THEN
        SELECT value INTO hc_place FROM {meta} WHERE name = 'counted_in';
    ELSE
        -- At these levels the mark may be moving, or be newer than the snapshot.
        SELECT value INTO hc_place FROM {meta} WHERE name = 'counted_in'
        FOR SHARE SKIP LOCKED;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'hotcount moves its counts' USING ERRCODE = '40001';
        END IF;
    END IF;
--if has_count
    IF hc_place = 'item' THEN
--if foreign_key
        -- The item's id was changed and its votes follow: its row has kept the count.
        IF TG_OP = 'UPDATE' THEN
            IF NOT EXISTS (SELECT FROM {item} WHERE {id} = OLD.{vote_item}) THEN
                RETURN NULL;
            END IF;
        END IF;
--end
        PERFORM 1 FROM {item} WHERE {id} = ANY (hc_items) ORDER BY {id} FOR NO KEY UPDATE;
        UPDATE {item} AS hc_i SET {count} = COALESCE(hc_i.{count}, 0) + c.diff
        FROM unnest(hc_items, hc_diffs) AS c (item, diff)
        WHERE hc_i.{id} = c.item;
        RETURN NULL;
    END IF;
--end
    IF hc_place = 'cache' THEN
        INSERT INTO {recount} AS hc_r (item, asked)
        SELECT c.item, 1 FROM unnest(hc_items, hc_diffs) AS c (item, diff)
        ON CONFLICT (item) DO UPDATE SET asked = hc_r.asked + 1;
        RETURN NULL;
    END IF;
    INSERT INTO {journal} (item, diff)
    SELECT c.item, c.diff FROM unnest(hc_items, hc_diffs) AS c (item, diff);
    RETURN NULL;
END $hotcount$;
REVOKE ALL ON FUNCTION {function}() FROM PUBLIC;
-- Names without a schema are this session's, not those of the session that deletes.
DO $hotcount$ BEGIN
    EXECUTE format(
        'ALTER FUNCTION %s() SET search_path = %s',
        {function_literal},
        (
            SELECT string_agg(quote_ident(s), ', ')
            FROM unnest(
                CAST('{pg_catalog}' AS name[])
                || array_remove(current_schemas(false), 'pg_catalog')
                || CAST('{pg_temp}' AS name[])
            ) AS s
        )
    );
END $hotcount$;

-- name: changes
-- The items of the rows {1} whose counts change, and by how much: two arrays.
SELECT
    array_agg(CAST(c.item AS {item_element}) ORDER BY c.item),
    array_agg(c.diff ORDER BY c.item)
FROM (
    SELECT hc_c.item, CAST(SUM(hc_c.diff) AS bigint) AS diff
    FROM ({1}) AS hc_c (item, diff)
    WHERE hc_c.item IS NOT NULL
    GROUP BY 1
    HAVING SUM(hc_c.diff) <> 0
) AS c

-- name: changed_row
VALUES
    (OLD.{vote_item}, -CAST(OLD.{value} AS numeric)),
    (NEW.{vote_item}, CAST(NEW.{value} AS numeric))

-- name: removed_from
SELECT {vote_item}, -CAST({value} AS numeric)
FROM {1}

-- name: drop_triggers
DROP TRIGGER IF EXISTS hotcount_deleted ON {table};
DROP TRIGGER IF EXISTS hotcount_emptied ON {table};
DROP TRIGGER IF EXISTS hotcount_inserted ON {table};
DROP TRIGGER IF EXISTS hotcount_updated ON {table};

-- name: create_triggers
-- The triggers for INSERT and UPDATE are created only if {counts}.
CREATE TRIGGER hotcount_deleted AFTER DELETE ON {table}
--if by_rows
FOR EACH ROW
--else
REFERENCING OLD TABLE AS hc_old FOR EACH STATEMENT
--end
WHEN ({others}) EXECUTE FUNCTION {function}();
CREATE TRIGGER hotcount_emptied BEFORE TRUNCATE ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION {function}();
--if counts
CREATE TRIGGER hotcount_inserted AFTER INSERT ON {table}
FOR EACH ROW WHEN (NEW.{value} <> 0 AND {others}) EXECUTE FUNCTION {function}();
CREATE TRIGGER hotcount_updated AFTER UPDATE ON {table}
FOR EACH ROW
WHEN (
    (OLD.{vote_item}, OLD.{value}) IS DISTINCT FROM (NEW.{vote_item}, NEW.{value})
    AND {others}
)
EXECUTE FUNCTION {function}();
--end

-- name: others
-- The statement is not ours. A client may put comments before a statement.
(
    (
        current_query() LIKE 'WITH hc_own%'
        OR (
            current_query() LIKE '%WITH hc_own%'
            AND current_query() ~ '^([[:space:]]|/[*]([^*]|[*]+[^*/])*[*]+/)*WITH hc_own'
        )
    )
    AND pg_trigger_depth() = 0
) IS NOT TRUE

-- name: drop_function
DROP FUNCTION IF EXISTS {function}();
