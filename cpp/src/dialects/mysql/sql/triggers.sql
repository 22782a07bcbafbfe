-- Triggers of a vote table on MariaDB and MySQL (outside_triggers.cpp).
--
-- A trigger ignores our own writes. Our sessions run only our statements, and have a variable that
-- session.sql sets. A statement of ours in the application's session sets a sql_select_limit that
-- nothing else sets, for itself alone.
--
-- A trigger locks the mark `outside_writes`, as lock_all (tables.sql) does, so the counts move only
-- while no open transaction has counted in the former place. The mark `counted_in` would not do: it
-- may be missing, and then READ COMMITTED locks nothing and REPEATABLE READ a gap, which would
-- deadlock with the move.

-- name: create
CREATE TRIGGER /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ {trigger} {when} ON {vote}
FOR EACH ROW {text};

-- name: drop
DROP TRIGGER IF EXISTS {trigger};

-- name: text
-- {others} is in the text of each, and identifies a trigger of hotcount's. {body}: one of the
-- four below.
IF {others} THEN
    {body}
END IF; END IF

-- name: deleted
BEGIN
    {find_place}
    {count_vote(OLD.{vote_item}, -{was})}
END;

-- name: inserted
BEGIN
    {find_place}
    {count_vote(NEW.{vote_item}, {is})}
END;

-- name: updated
-- {for_ignored}: the trigger runs for a row that the statement leaves as it was. The locking read
-- sees the current row, not a snapshot.
IF NOT (OLD.{vote_item} <=> NEW.{vote_item} AND {was} = {is})
--if for_ignored
    AND NOT EXISTS (
        SELECT 1
        FROM {vote}
        WHERE {vote_item} = OLD.{vote_item}
            AND {vote_user} = OLD.{vote_user}
            AND {value} = OLD.{value}
        LOCK IN SHARE MODE)
--end
THEN
    BEGIN
        {find_place}
        IF OLD.{vote_item} <=> NEW.{vote_item} THEN
            {count_vote(NEW.{vote_item}, ({is} - {was}))}
        ELSE
            {count_vote(OLD.{vote_item}, -{was})}
            {count_vote(NEW.{vote_item}, {is})}
        END IF;
    END;
END IF;

-- name: inserting
-- Locks the item before the foreign key takes a shared lock on it: two statements with shared locks
-- would deadlock when both change its count.
BEGIN
    {find_place}
    IF hc_place = 'item' THEN
        SET hc_place = (SELECT 1 FROM {item} WHERE {id} = NEW.{vote_item} FOR UPDATE);
    END IF;
END;

-- name: was
-- A decimal: the server then refuses a difference beyond 64 bits, and the column may be unsigned.
CAST(COALESCE(OLD.{value}, 0) AS DECIMAL(20))

-- name: is
CAST(COALESCE(NEW.{value}, 0) AS DECIMAL(20))

-- name: find_place
-- hc_place is where the counts are. DO would ignore an error: after a deadlock, which rolls the
-- change back, the trigger would still count it.
DECLARE hc_place VARBINARY(1000);
SET hc_place = (SELECT value FROM {meta} WHERE name = 'outside_writes' LOCK IN SHARE MODE);
SET hc_place = (SELECT value FROM {meta} WHERE name = 'counted_in' LOCK IN SHARE MODE);

-- name: count_vote
-- Adds {2} to the count of item {1}. A vote of ours opens every table that a trigger's body names,
-- so the body names only one place beside the journal.
IF {1} IS NOT NULL AND {2} <> 0 THEN
--if in_journal
    {note({1}, {2})}
--else
    CASE hc_place
--if in_item
        WHEN 'item' THEN
            UPDATE {item} SET {count} = COALESCE({count}, 0) + {2} WHERE {id} = {1};
--else
        WHEN 'cache' THEN
            INSERT INTO {recount} (item, asked)
            VALUES ({1}, 1)
            ON DUPLICATE KEY UPDATE asked = asked + 1;
--end
        ELSE
            {note({1}, {2})}
    END CASE;
--end
END IF;

-- name: note
INSERT INTO {journal} (item, diff) VALUES ({1}, {2});

-- name: try_rights
-- Names a trigger that does not exist: the server checks the rights first.
CREATE TRIGGER {trigger} AFTER DELETE ON {vote}
FOR EACH ROW FOLLOWS "no trigger of hotcount" SET @hotcount = 1

-- name: try_vote
-- Whether triggers of another account run: the server checks that account's rights when a trigger
-- runs. Without the foreign key's check the vote waits for no item.
/*M! SET STATEMENT foreign_key_checks = 0 FOR */
INSERT /*+ SET_VAR(foreign_key_checks = OFF) */
INTO {anonymous_vote} ({vote_item}, {anonymous_user}, {value})
VALUES ({some_id}, '', 0);
DELETE FROM {anonymous_vote} WHERE {vote_item} = {some_id} AND {anonymous_user} = '';

-- name: marks
-- The marks that tell the form of triggers that this account cannot see.
SELECT name, value FROM {meta} WHERE name IN ('counted_in', 'outside_writes')
