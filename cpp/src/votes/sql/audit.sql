-- The statements of reconcile. Each page of ids is a list, because tables may sort ids by different
-- collations, while all compare them alike.

-- name: page
-- The ids of a page, ?1 and up, in a type that is as wide as the widest id of these tables.
--each ,
{item_id(?1)}
--end

-- name: look
-- Everything that the tables know of a page of items, as AuditedItem has it, in the order of the
-- ids. Each part of the union has one row for an item, with 0 in the columns of the other parts. So
-- an outer sum is the number of one part; only hc_votes and hc_live add two. Locks nothing.
SELECT {spelling}, SUM(hc_there), SUM(hc_stored), SUM(hc_cells), SUM(hc_opening), SUM(hc_pending),
    SUM(hc_rows), SUM(hc_votes), SUM(hc_live)
FROM (
    SELECT hc_i.{id} AS hc_id, 1 AS hc_there, {own_count(hc_i)} AS hc_stored, 0 AS hc_cells,
    0 AS hc_opening, 0 AS hc_pending, 0 AS hc_rows, 0 AS hc_votes, 0 AS hc_live
    FROM {item} AS hc_i
    WHERE hc_i.{id} IN ({page})
    UNION ALL
    SELECT item, 0, 0, SUM(n), SUM(CASE WHEN slot = {opening_slot} THEN n ELSE 0 END), 0, 0, 0, 0
    FROM {cell}
    WHERE item IN ({page})
    GROUP BY item
--if has_journal
    UNION ALL
    SELECT item, 0, 0, 0, 0, SUM(diff), COUNT(*), 0, 0
    FROM {journal}
    WHERE item IN ({page})
    GROUP BY item
--end
    UNION ALL
    {look_at_votes({vote})}
    UNION ALL
    {look_at_votes({anonymous_vote})}
) AS hc_u
GROUP BY hc_id
ORDER BY hc_id

-- name: look_at_votes
SELECT {vote_item}, 0, 0, 0, 0, 0, 0, SUM({value}), COUNT(NULLIF({value}, 0))
FROM {1}
WHERE {vote_item} IN ({page})
GROUP BY {vote_item}

-- name: spelling
-- The id as the item's row spells it: in a column that ignores case, other tables may have another
-- spelling. PostgreSQL has no MAX of UUIDs.
--if text_items
COALESCE(MAX(CASE WHEN hc_there = 1 THEN hc_id END), MIN(hc_id))
--else
hc_id
--end

-- == Walks over the ids of one table ==

-- name: items
-- The next ids of items, at most ?1, or ?2 that follow ?1.
SELECT hc_d.hc_id
{ids_of({item}, {id})}

-- name: left_behind
-- The next ids that table {table} has in its column {key}, and whether there is such an item: 0
-- or 1.
SELECT hc_d.hc_id, (SELECT COUNT(*) FROM {item} AS hc_i WHERE hc_i.{id} = hc_d.hc_id)
{ids_of({table}, {key})}

-- name: ids_of
-- IS NOT NULL: an application's own table may have rows without an item.
FROM (
    SELECT DISTINCT {2} AS hc_id
    FROM {1}
--if after
    WHERE {2} > {item_id(?1)}
    ORDER BY {2}
    LIMIT ?2
--else
    WHERE {2} IS NOT NULL
    ORDER BY {2}
    LIMIT ?1
--end
) AS hc_d
ORDER BY hc_d.hc_id

-- == Corrections ==

-- name: append
{append_rows}

-- name: add_to_items
-- Adds each difference to the item's own count. Locks the items.
UPDATE {item}
SET {count} = {corrected}
WHERE {id} IN (
--each ,
    ?1
--end
)
{and_fits({corrected})}
-- name: corrected
COALESCE({count}, 0) + CASE {id}
--each
WHEN ?1 THEN CAST(?2 AS {integer_cast})
--end
END
