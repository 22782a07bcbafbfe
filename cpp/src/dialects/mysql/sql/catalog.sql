-- Queries of information_schema about tables on MariaDB and MySQL. The schema '' is the session's
-- database. No statement locks anything.

-- name: in
COALESCE(NULLIF({1}, ''), DATABASE())

-- name: table
-- Of table ?2 in schema ?1: whether it is not a view, has triggers of the application's or CHECK
-- constraints, is partitioned, is system-versioned, its engine, and whether it has a FULLTEXT
-- index. No row if the table does not exist.
SELECT
    TABLE_TYPE NOT LIKE '%VIEW',
    EXISTS (
        SELECT 1
        FROM information_schema.TRIGGERS
        WHERE EVENT_OBJECT_SCHEMA = {in(?1)}
            AND EVENT_OBJECT_TABLE = ?2
            AND INSTR(ACTION_STATEMENT, '@hotcount_own') = 0)
    OR EXISTS (
        SELECT 1
        FROM information_schema.TABLE_CONSTRAINTS
        WHERE TABLE_SCHEMA = {in(?1)} AND TABLE_NAME = ?2 AND CONSTRAINT_TYPE = 'CHECK'),
    COALESCE(CREATE_OPTIONS, '') LIKE '%partitioned%',
    TABLE_TYPE LIKE '%VERSIONED',
    COALESCE(ENGINE, ''),
    EXISTS (
        SELECT 1
        FROM information_schema.STATISTICS
        WHERE TABLE_SCHEMA = {in(?1)} AND TABLE_NAME = ?2 AND INDEX_TYPE = 'FULLTEXT')
FROM information_schema.TABLES
WHERE TABLE_SCHEMA = {in(?1)} AND TABLE_NAME = ?2

-- name: columns
-- The columns of table ?2 in schema ?1, in order: name, full type, type, whether it may be NULL,
-- whether it has a default, EXTRA, collation or '', default or 'NULL'.
SELECT
    COLUMN_NAME,
    COLUMN_TYPE,
    DATA_TYPE,
    IS_NULLABLE = 'YES',
    COLUMN_DEFAULT IS NOT NULL,
    EXTRA,
    COALESCE(COLLATION_NAME, ''),
    COALESCE(COLUMN_DEFAULT, 'NULL')
FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = {in(?1)} AND TABLE_NAME = ?2
ORDER BY ORDINAL_POSITION

-- name: keys
-- The columns of the indexes of table ?2 in schema ?1: index, column (NULL for an expression),
-- whether the index is not unique, position in the index, whether only a prefix is indexed.
SELECT INDEX_NAME, COLUMN_NAME, NON_UNIQUE, SEQ_IN_INDEX, SUB_PART IS NOT NULL
FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = {in(?1)} AND TABLE_NAME = ?2
ORDER BY INDEX_NAME, SEQ_IN_INDEX

-- name: refers
-- The columns of table ?2 in schema ?1 that refer to column ?5 of table ?4 in schema ?3.
SELECT COLUMN_NAME
FROM information_schema.KEY_COLUMN_USAGE
WHERE TABLE_SCHEMA = {in(?1)}
    AND TABLE_NAME = ?2
    AND REFERENCED_TABLE_SCHEMA = {in(?3)}
    AND REFERENCED_TABLE_NAME = ?4
    AND REFERENCED_COLUMN_NAME = ?5

-- name: references
-- The number of foreign keys of column ?3 of table ?2 in schema ?1 that refer to column ?6 of table
-- ?5 in schema ?4.
SELECT COUNT(*)
FROM information_schema.KEY_COLUMN_USAGE
WHERE TABLE_SCHEMA = {in(?1)}
    AND TABLE_NAME = ?2
    AND COLUMN_NAME = ?3
    AND REFERENCED_TABLE_SCHEMA = {in(?4)}
    AND REFERENCED_TABLE_NAME = ?5
    AND REFERENCED_COLUMN_NAME = ?6

-- name: key_types
-- The columns ?3 and ?4 of table ?2 in schema ?1, and ?7 of table ?6 in schema ?5: whether its name
-- is ?4, type, collation or ''.
SELECT COLUMN_NAME = ?4, DATA_TYPE, COALESCE(COLLATION_NAME, '')
FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = {in(?1)} AND TABLE_NAME = ?2 AND COLUMN_NAME IN (?3, ?4)
    OR TABLE_SCHEMA = {in(?5)} AND TABLE_NAME = ?6 AND COLUMN_NAME = ?7

-- name: column_type
-- The type of column ?3 of table ?2 in schema ?1, its character set and its collation.
SELECT COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME
FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = {in(?1)} AND TABLE_NAME = ?2 AND COLUMN_NAME = ?3

-- name: find_index
-- The number of indexes of table ?2 in schema ?1 that begin with column ?3.
SELECT COUNT(*)
FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = {in(?1)} AND TABLE_NAME = ?2 AND COLUMN_NAME = ?3 AND SEQ_IN_INDEX = 1

-- name: is_mariadb
-- 1 on MariaDB, 0 on MySQL.
SELECT 0 /*M! + 1 */

-- name: triggers
-- The triggers on the vote tables ?2 and ?3 of schema ?1, and triggers with names like hotcount's:
-- name, table, whether it is on ?2, whether it is on ?3, text or '', definer, whether that is this
-- account, whether it runs for INSERT or UPDATE. To an account without the TRIGGER privilege,
-- MariaDB shows triggers without their text, and MySQL shows no trigger.
SELECT
    TRIGGER_NAME,
    EVENT_OBJECT_TABLE,
    EVENT_OBJECT_TABLE = ?2,
    EVENT_OBJECT_TABLE = ?3,
    COALESCE(ACTION_STATEMENT, ''),
    COALESCE(DEFINER, ''),
    DEFINER <=> CURRENT_USER(),
    EVENT_MANIPULATION <> 'DELETE'
FROM information_schema.TRIGGERS
WHERE TRIGGER_SCHEMA = {in(?1)}
    AND (EVENT_OBJECT_TABLE IN (?2, ?3) OR TRIGGER_NAME LIKE '%hotcount%')
ORDER BY TRIGGER_NAME

-- name: account
-- The name of this session's account, in information_schema's form.
CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''')

-- name: may_hide_triggers
-- Whether table ?2 is in schema ?1 and triggers on table ?3 may be hidden from this account: it
-- sees them without their text (?4 = 1), or it lacks the TRIGGER privilege for that table.
SELECT COUNT(*)
FROM information_schema.TABLES AS hc_t
WHERE hc_t.TABLE_SCHEMA = {in(?1)}
    AND hc_t.TABLE_NAME = ?2
    AND (
        ?4 = 1
        OR NOT EXISTS (
            SELECT 1
            FROM information_schema.USER_PRIVILEGES
            WHERE PRIVILEGE_TYPE = 'TRIGGER' AND GRANTEE = {account})
        AND NOT EXISTS (
            SELECT 1
            FROM information_schema.SCHEMA_PRIVILEGES
            WHERE PRIVILEGE_TYPE = 'TRIGGER'
                AND GRANTEE = {account}
                AND hc_t.TABLE_SCHEMA LIKE TABLE_SCHEMA)
        AND NOT EXISTS (
            SELECT 1
            FROM information_schema.TABLE_PRIVILEGES
            WHERE PRIVILEGE_TYPE = 'TRIGGER'
                AND GRANTEE = {account}
                AND TABLE_SCHEMA = hc_t.TABLE_SCHEMA
                AND TABLE_NAME = ?3))

-- name: cascades
-- The foreign keys of table ?2 in schema ?1: name, rules ON DELETE and ON UPDATE, and whether
-- column ?3 is among its columns.
SELECT hc_r.CONSTRAINT_NAME, hc_r.DELETE_RULE, hc_r.UPDATE_RULE, MAX(hc_k.COLUMN_NAME = ?3)
FROM information_schema.REFERENTIAL_CONSTRAINTS AS hc_r
JOIN information_schema.KEY_COLUMN_USAGE AS hc_k
    ON hc_k.CONSTRAINT_SCHEMA = hc_r.CONSTRAINT_SCHEMA
    AND hc_k.CONSTRAINT_NAME = hc_r.CONSTRAINT_NAME
    AND hc_k.TABLE_NAME = hc_r.TABLE_NAME
WHERE hc_r.CONSTRAINT_SCHEMA = {in(?1)} AND hc_r.TABLE_NAME = ?2
GROUP BY hc_r.CONSTRAINT_NAME, hc_r.DELETE_RULE, hc_r.UPDATE_RULE
ORDER BY hc_r.CONSTRAINT_NAME
