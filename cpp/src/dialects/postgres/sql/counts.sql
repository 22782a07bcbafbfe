-- Counts and votes of many items on PostgreSQL.

-- name: counts
-- The count of each item of a list, as {select_count} has it, and whether the level is
-- SERIALIZABLE. Not an array: the plan depends on an array's length, so each read would be planned
-- again. Planning took 80 us, and the sum itself 30 us.
{counts_of} (
    VALUES
--each ,
    (#1, CAST(?1 AS {item_element}))
--end
)
{in_each}

-- name: counts_of_array
-- The counts of the items of the array ?1, with the same columns.
{counts_of} {items_of_array} {in_each}

-- name: select_of_array
-- {select} of each item of the array ?1.
SELECT hc_c.*
FROM {items_of_array} {in_each}

-- name: counts_of
SELECT hc_c.*, CAST(current_setting('transaction_isolation') = 'serializable' AS int)
FROM

-- name: items_of_array
(
    SELECT number, item
    FROM unnest(CAST(?1 AS {item_element}[])) WITH ORDINALITY AS hc_a (item, number)
)

-- name: in_each
-- {select}: of hc_b.item and hc_b.number.
AS hc_b (number, item)
CROSS JOIN LATERAL ({select}) AS hc_c

-- name: votes_of_array
-- The votes of user ?2 for the items of the array ?1, in its order, NULL for no vote. A subquery
-- for each item finds the row by the key, whatever row count the planner expects.
SELECT (
    SELECT {value}
    FROM {vote}
    WHERE {vote_item} = hc_a.item AND {vote_user} = {user_parameter}
)
FROM unnest(CAST(?1 AS {item_element}[])) WITH ORDINALITY AS hc_a (item, number)
ORDER BY hc_a.number
