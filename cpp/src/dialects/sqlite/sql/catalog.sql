-- Tables in SQLite's schema and pragmas. {mark}: the literal by which the triggers of
-- votes are known (kVoteTrigger).

-- name: table
-- Of ?1: whether it is a table, and whether it has triggers of the application's or CHECK. No row
-- if it does not exist.
SELECT
    type = 'table',
    sql LIKE '%CHECK%' OR EXISTS (
        SELECT 1
        FROM sqlite_master
        WHERE type = 'trigger'
            AND tbl_name = ?1 COLLATE NOCASE
            AND instr(sql, {mark}) = 0)
FROM sqlite_master
WHERE type IN ('table', 'view') AND name = ?1 COLLATE NOCASE

-- name: columns
-- Of table ?1: name, type, whether NOT NULL, whether a default, place in the primary key, hidden,
-- default.
SELECT
    name, type, "notnull", dflt_value IS NOT NULL, pk, hidden, COALESCE(dflt_value, '')
FROM pragma_table_xinfo(?1)

-- name: keys
-- The columns of the indexes of table ?1: index, column, is it unique over the whole table, place
-- in the index, is it of a part of the table.
SELECT l.name, i.name, l."unique" AND NOT l.partial, i.seqno, l.partial
FROM pragma_index_list(?1) AS l, pragma_index_info(l.name) AS i
ORDER BY l.seq, i.seqno

-- name: refers
-- The columns of table ?1 that refer to column ?3 of table ?2.
SELECT "from"
FROM pragma_foreign_key_list(?1)
WHERE "table" = ?2 COLLATE NOCASE AND COALESCE("to", ?3) = ?3 COLLATE NOCASE

-- name: find_key
-- A row if column ?2 of table ?1 has a foreign key.
SELECT 1
FROM pragma_foreign_key_list(?1)
WHERE "from" = ?2 COLLATE NOCASE

-- name: find_index
-- How many indexes over the whole table ?2 begin with column ?3.
SELECT COUNT(*)
FROM pragma_index_list(?2) AS l, pragma_index_info(l.name) AS i
WHERE l.partial = 0 AND i.seqno = 0 AND i.name = ?3 AND ?1 = ''

-- name: cascades
-- The foreign keys of table ?1, which have no names: column, table that it refers to, rules ON
-- DELETE and ON UPDATE, and is the column ?2.
SELECT "from", "table", on_delete, on_update, "from" = ?2 COLLATE NOCASE
FROM pragma_foreign_key_list(?1)
ORDER BY id, seq

-- name: triggers
-- The triggers of votes on the vote tables ?1 and ?2, and the one called ?4 on the item table ?3:
-- is it on ?1, is it on ?2, name, and its text from ?5 on, which is the mark.
SELECT
    tbl_name = ?1 COLLATE NOCASE,
    tbl_name = ?2 COLLATE NOCASE,
    name,
    substr(sql, instr(sql, ?5) + length(?5))
FROM sqlite_master
WHERE type = 'trigger'
    AND instr(sql, ?5) > 0
    AND (
        tbl_name COLLATE NOCASE IN (?1, ?2)
        OR (tbl_name = ?3 COLLATE NOCASE AND name = ?4 COLLATE NOCASE))

-- name: other_triggers
-- Whether the database has triggers without the mark ?1, or of a second pair of vote tables: each
-- pair has two that run after a deletion.
SELECT
    COALESCE(SUM(instr(sql, ?1) = 0), 0) > 0
    OR COALESCE(SUM(instr(sql, ?1 || 'deleted') > 0), 0) > 2
FROM sqlite_master
WHERE type = 'trigger'

-- name: taken
-- Triggers without the mark ?3 whose names begin with ?1 or ?2.
SELECT name
FROM sqlite_master
WHERE type = 'trigger'
    AND instr(sql, ?3) = 0
    AND (
        substr(name, 1, length(?1)) = ?1 COLLATE NOCASE
        OR substr(name, 1, length(?2)) = ?2 COLLATE NOCASE)
