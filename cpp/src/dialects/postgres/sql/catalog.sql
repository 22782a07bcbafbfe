-- Queries of PostgreSQL's catalogue about tables whose names are parameters.

-- name: table
-- Of the table ?1: whether it is a table, whether triggers, rules or checks may change or refuse a
-- vote, whether it is partitioned, and whether row-level security hides rows from this role.
-- Security hides no row if a permissive policy covers all rows, commands and this role, and no
-- policy is restrictive. pg_get_expr locks the table, so it is called only if there are policies.
SELECT
    CAST(relkind IN ('r', 'p') AS int),
    CAST(
        EXISTS (
            SELECT
            FROM pg_trigger
            WHERE
                tgrelid = c.oid
                AND NOT tgisinternal
                AND tgenabled <> 'D'
                AND tgname NOT LIKE 'hotcount\_%'
        )
        OR EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid AND ev_type <> '1')
        OR EXISTS (SELECT FROM pg_constraint WHERE conrelid = c.oid AND contype = 'c')
        AS int
    ),
    CAST(relkind = 'p' AS int),
    CAST(
        CASE
            WHEN row_security_active(c.oid)
            THEN
                EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid AND NOT polpermissive)
                OR NOT EXISTS (
                    SELECT
                    FROM pg_policy
                    WHERE
                        polrelid = c.oid
                        AND polcmd = '*'
                        AND pg_get_expr(polqual, polrelid) = 'true'
                        AND COALESCE(pg_get_expr(polwithcheck, polrelid), 'true') = 'true'
                        AND EXISTS (
                            SELECT
                            FROM unnest(polroles) AS of(role)
                            WHERE
                                CASE WHEN role = 0 THEN true ELSE pg_has_role(role, 'USAGE') END
                        )
                )
            ELSE false
        END
        AS int
    )
FROM pg_class AS c
WHERE oid = to_regclass(CAST(?1 AS text))

-- name: columns
-- Of each column of the table ?1: the name, the type as SQL spells it, the type's name in the
-- catalogue (of a domain, its base type), whether the column is NOT NULL, has a default, is not
-- writable, is an identity, and whether its default calls a function (funcformat 0: written as a
-- call, not a cast).
SELECT
    CAST(a.attname AS text),
    format_type(a.atttypid, a.atttypmod),
    CAST(COALESCE(b.typname, t.typname) AS text),
    CAST(a.attnotnull OR t.typnotnull AS int),
    CAST(a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL AS int),
    CAST(a.attgenerated <> '' OR a.attidentity = 'a' AS int),
    CAST(a.attidentity <> '' AS int),
    CAST(COALESCE(CAST(d.adbin AS text) LIKE '%:funcformat 0%', false) AS int)
FROM pg_attribute AS a
JOIN pg_type AS t ON t.oid = a.atttypid
LEFT JOIN pg_type AS b ON b.oid = t.typbasetype
LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = to_regclass(CAST(?1 AS text)) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: keys
-- Of each column of each index of the table ?1: the index, the column (NULL for an expression),
-- whether the index is unique over all rows and not deferrable, whether its build is complete,
-- whether it is not partial, and the column's position in it.
SELECT
    CAST(x.relname AS text),
    CAST(a.attname AS text),
    CAST(
        i.indisunique
        AND i.indimmediate
        AND i.indpred IS NULL
        AND NOT EXISTS (SELECT FROM unnest(CAST(i.indkey AS int2[])) AS e(n) WHERE e.n = 0)
        AS int
    ),
    CAST(i.indisvalid AS int),
    CAST(i.indpred IS NULL AS int),
    k.place
FROM pg_index AS i
JOIN pg_class AS x ON x.oid = i.indexrelid
CROSS JOIN LATERAL unnest(CAST(i.indkey AS int2[])) WITH ORDINALITY AS k(number, place)
LEFT JOIN pg_attribute AS a
    ON a.attrelid = i.indrelid AND a.attnum = k.number AND k.number <> 0
WHERE i.indrelid = to_regclass(CAST(?1 AS text)) AND k.place <= i.indnkeyatts
ORDER BY 1, k.place

-- name: references
-- The single-column foreign keys from the table ?1 to the column ?3 of the table ?2: the column,
-- the key, whether the existing rows have been validated.
SELECT
    CAST(a.attname AS text),
    CAST(f.conname AS text),
    CAST(f.convalidated AS int)
FROM pg_constraint AS f
JOIN pg_attribute AS a ON a.attrelid = f.conrelid AND a.attnum = f.conkey[1]
JOIN pg_attribute AS o ON o.attrelid = f.confrelid AND o.attnum = f.confkey[1]
WHERE
    f.contype = 'f'
    AND array_length(f.conkey, 1) = 1
    AND f.conrelid = to_regclass(CAST(?1 AS text))
    AND f.confrelid = to_regclass(CAST(?2 AS text))
    AND o.attname = CAST(?3 AS text)

-- name: collations
-- The collations, other than the default, of the columns that hold item ids: of the table ?1, shown
-- as ?2, the column ?3; of ?4, ?5, ?6; and of the table ?7, shown as ?8. Returns collation, column,
-- and whether the collation is deterministic.
SELECT
    quote_ident(n.nspname) || '.' || quote_ident(c.collname),
    t.shown || '.' || quote_ident(t.of_column),
    CAST(c.collisdeterministic AS int)
FROM (
    VALUES
        (1, CAST(?1 AS text), CAST(?2 AS text), CAST(?3 AS text)),
        (2, CAST(?4 AS text), CAST(?5 AS text), CAST(?6 AS text)),
        (3, CAST(?7 AS text), CAST(?8 AS text), 'item')
) AS t (part, of_table, shown, of_column)
JOIN pg_attribute AS a ON a.attrelid = to_regclass(t.of_table) AND a.attname = t.of_column
JOIN pg_collation AS c ON c.oid = a.attcollation
JOIN pg_namespace AS n ON n.oid = c.collnamespace
WHERE c.collname <> 'default'
ORDER BY t.part

-- name: alike
-- How many of three columns are missing, or compare different ids as equal: ?2 of the table ?1, ?4
-- and ?5 of the table ?3. A domain compares as the type that it is made of, at any depth.
SELECT 3 - COUNT(*)
FROM (
    VALUES (CAST(?1 AS text), CAST(?2 AS text)), (?3, ?4), (?3, ?5)
) AS t (of_table, of_column)
JOIN pg_attribute AS a ON a.attrelid = to_regclass(t.of_table) AND a.attname = t.of_column
LEFT JOIN pg_collation AS c ON c.oid = a.attcollation
WHERE COALESCE(c.collisdeterministic, TRUE)
    AND NOT EXISTS (
        WITH RECURSIVE made_of AS (
            SELECT y.typname, y.typbasetype FROM pg_type AS y WHERE y.oid = a.atttypid
            UNION ALL
            SELECT y.typname, y.typbasetype
            FROM made_of
            JOIN pg_type AS y ON y.oid = made_of.typbasetype
        )
        SELECT 1 FROM made_of WHERE typname IN ('citext', 'bpchar')
    )

-- name: find_index
-- The number of complete, not partial indexes of the table ?2 in the schema ?1 (may be '') that
-- begin with the column ?3.
SELECT COUNT(*)
FROM pg_index AS x
JOIN pg_attribute AS a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
WHERE
    x.indrelid = to_regclass(
        CASE CAST(?1 AS text) WHEN '' THEN '' ELSE quote_ident(CAST(?1 AS text)) || '.' END
        || quote_ident(CAST(?2 AS text))
    )
    AND a.attname = CAST(?3 AS name)
    AND x.indisvalid
    AND x.indpred IS NULL

-- name: rights
-- Of the vote table ?1 and the journal ?2: whether the vote table is partitioned, whether this role
-- may create triggers on it and functions in its schema, and whether it may insert into the
-- journal.
SELECT
    CAST(c.relkind = 'p' AS int),
    CAST(has_table_privilege(c.oid, 'TRIGGER') AS int),
    CAST(has_schema_privilege(c.relnamespace, 'CREATE') AS int),
    CAST(COALESCE(has_table_privilege(to_regclass(CAST(?2 AS text)), 'INSERT'), true) AS int)
FROM pg_class AS c
WHERE c.oid = to_regclass(CAST(?1 AS text))

-- name: triggers
-- hotcount's triggers, by name, on the tables ?1 and ?2: the name, whether its function has the
-- text ?3, whether it works (it is enabled, and its function's search_path has the vote table's
-- schema), and whether this role may replace it.
SELECT
    CAST(t.tgname AS text),
    CAST(strpos(p.prosrc, CAST(?3 AS text)) > 0 AS int),
    CAST(
        t.tgenabled IN ('O', 'A')
        AND strpos(array_to_string(p.proconfig, ','), quote_ident(s.nspname)) > 0
        AS int
    ),
    CAST(pg_has_role(c.relowner, 'USAGE') AS int)
FROM pg_trigger AS t
JOIN pg_proc AS p ON p.oid = t.tgfoid
JOIN pg_class AS c ON c.oid = t.tgrelid
JOIN pg_namespace AS s ON s.oid = c.relnamespace
WHERE
    t.tgrelid IN (to_regclass(CAST(?1 AS text)), to_regclass(CAST(?2 AS text)))
    AND t.tgname LIKE 'hotcount%'

-- name: other_function
-- The function ?1 if it lacks the text ?2.
SELECT CAST(CAST(p.oid AS regprocedure) AS text)
FROM pg_proc AS p
WHERE
    p.oid = CAST(to_regproc(CAST(?1 AS text)) AS oid)
    AND strpos(p.prosrc, CAST(?2 AS text)) = 0

-- name: foreign_keys
-- The foreign keys of the vote table ?1: the name, the codes of ON DELETE and ON UPDATE, whether
-- the column ?2 is part of the key, and whether the key refers to the table itself.
SELECT
    quote_ident(f.conname),
    CAST(f.confdeltype AS text),
    CAST(f.confupdtype AS text),
    CAST(
        EXISTS (
            SELECT
            FROM pg_attribute AS a
            WHERE
                a.attrelid = f.conrelid
                AND a.attnum = ANY (f.conkey)
                AND a.attname = CAST(?2 AS name)
        )
        AS int
    ),
    CAST(f.confrelid = f.conrelid AS int)
FROM pg_constraint AS f
WHERE f.contype = 'f' AND f.conrelid = to_regclass(CAST(?1 AS text))
ORDER BY f.conname

-- name: search_path
SELECT current_setting('search_path')
