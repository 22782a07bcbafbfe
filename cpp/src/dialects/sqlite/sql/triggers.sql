-- Triggers of the vote tables on SQLite (outside_triggers.cpp). A comment in each says which event
-- it counts, and where.

-- name: deleted
CREATE TRIGGER {trigger} AFTER DELETE ON {vote}
WHEN {had} <> 0
BEGIN
    {comment}
    {count_vote(OLD.{vote_item}, - {had})}
END;

-- name: inserted
CREATE TRIGGER {trigger} AFTER INSERT ON {vote}
WHEN {has} <> 0
BEGIN
    {comment}
    {count_vote(NEW.{vote_item}, + {has})}
END;

-- name: updated
CREATE TRIGGER {trigger} AFTER UPDATE OF {value} ON {vote}
WHEN OLD.{vote_item} IS NEW.{vote_item} AND {had} <> {has}
BEGIN
    {comment}
    {count_vote(NEW.{vote_item}, + ({has} - {had}))}
END;

-- name: moved
CREATE TRIGGER {trigger} AFTER UPDATE OF {vote_item} ON {vote}
WHEN OLD.{vote_item} IS NOT NEW.{vote_item}
BEGIN
    {comment}
    {count_vote(OLD.{vote_item}, - {had})}
    {count_vote(NEW.{vote_item}, + {has})}
END;

-- name: renamed
-- An item's count and its opening balance move with its row, also where a cascade has just moved
-- its votes.
CREATE TRIGGER {trigger} AFTER UPDATE OF {id} ON {item}
WHEN OLD.{id} IS NOT NEW.{id}
BEGIN
    {comment}
    UPDATE {cell} SET item = NEW.{id} WHERE item = OLD.{id} AND slot = {opening_slot};
--if in_item
    UPDATE {item} SET {count} = NEW.{count} WHERE {id} = NEW.{id};
--end
END;

-- name: comment
{mark}{event}, in {place} */

-- name: had
COALESCE(OLD.{value}, 0)

-- name: has
COALESCE(NEW.{value}, 0)

-- name: count_vote
-- Adds {2}, which begins with its sign, to the count of item {1}.
--if in_item
UPDATE {item}
SET {count} = {checked(COALESCE({count}, 0) {2})}
WHERE {id} = {1};
-- OR IGNORE of the statement outside ignores a CHECK of the count as well.
SELECT RAISE(ABORT, 'a constraint refuses the count')
WHERE changes() = 0 AND EXISTS (SELECT 1 FROM {item} WHERE {id} = {1});
--end
--if in_cells
INSERT INTO {cell} (item, slot, n, ver)
SELECT {1}, 0, {checked(0 {2})}, 1
WHERE {1} IS NOT NULL
ON CONFLICT (item, slot) DO UPDATE SET
    n = {checked({cell}.n {2})},
    ver = {cell}.ver + 1;
-- The sum fails if the cells together leave 64 bits.
SELECT SUM(n) FROM {cell} WHERE item = {1};
--end
--if in_cache
INSERT INTO {recount} (item, asked)
SELECT {1}, 1
WHERE {1} IS NOT NULL
ON CONFLICT (item) DO UPDATE SET asked = {recount}.asked + 1;
--end

-- name: checked
-- Beyond 64 bits a sum becomes a REAL. Nothing but abs() of the least integer raises an error in an
-- expression.
CASE WHEN typeof({1}) = 'integer' THEN {1} ELSE abs((-9223372036854775807 - 1)) END

-- name: drop
DROP TRIGGER IF EXISTS {trigger};

-- name: not_counted
-- 1 unless triggers count the rows inserted into {table}, then 0.
(
    SELECT COUNT(*) = 0
    FROM sqlite_master
    WHERE type = 'trigger' AND instr(sql, {inserted}) > 0 AND tbl_name = {table} COLLATE NOCASE)
