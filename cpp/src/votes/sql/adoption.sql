-- Tables that the application has created and filled: checks of their rows before hotcount counts
-- them, and the statements that take their counts over.

-- == Checks of the rows; they lock nothing ==

-- name: other_id
-- A value of the column {1} for which the condition {2} is true, as a text.
SELECT CAST({1} AS TEXT) FROM {vote} WHERE {2} LIMIT 1

-- name: voted_twice
-- An item, a user and how many votes that user has for it, if there are several.
SELECT {vote_item}, {vote_user}, COUNT(*)
FROM {vote}
WHERE {votes_with_user}
GROUP BY {vote_item}, {vote_user}
HAVING COUNT(*) > 1
LIMIT 1

-- name: orphan
-- An item that has votes and no row.
SELECT hc_v.{vote_item}
FROM {vote} AS hc_v
WHERE hc_v.{vote_item} IS NOT NULL
--if has_items
    AND NOT EXISTS (SELECT 1 FROM {item} AS hc_i WHERE hc_i.{id} = hc_v.{vote_item})
--end
LIMIT 1

-- == Votes that are tried, and rolled back ==

-- name: any_vote
-- Item, user and value of any vote that counts.
SELECT {vote_item}, {vote_user}, {value}
FROM {vote}
WHERE {votes_with_user} AND {value} <> 0
LIMIT 1

-- name: other_item
-- An item that user ?1 has no vote for.
SELECT hc_i.{id}
FROM {item} AS hc_i
WHERE NOT EXISTS (
    SELECT 1 FROM {vote} AS hc_v WHERE hc_v.{vote_item} = hc_i.{id} AND hc_v.{vote_user} = ?1
)
LIMIT 1

-- name: count_of_item
-- The own count of item ?1.
SELECT {own_count({item})} FROM {item} WHERE {id} = ?1

-- name: try_vote
-- Sets the vote of user ?2 for item ?1 to ?3.
{own_write}
INSERT INTO {vote} ({vote_item}, {vote_user}, {value}, {previous}, {version})
VALUES (?1, ?2, ?3, 0, NULL)
{or_update({vote_item}, {vote_user})}
{previous} = {vote}.{value}, {value} = {excluded({value})}

-- name: tried_vote
-- The vote of user ?2 for item ?1.
SELECT {value} FROM {vote} WHERE {vote_item} = ?1 AND {vote_user} = ?2

-- == Opening balances ==

-- name: find_tables
-- How many of the tables item, vote, vote_anonymous, vote_cell and vote_meta there are, each by
-- its schema and name: ?1 and ?2, and so on.
SELECT ({find_table(?1, ?2)}), ({find_table(?3, ?4)}), ({find_table(?5, ?6)}),
    ({find_table(?7, ?8)}), ({find_table(?9, ?10)})

-- name: lock_marks
-- Blocks other takeovers of the tables until the transaction ends.
SELECT value FROM {meta} ORDER BY name FOR UPDATE;

-- name: count_differing
-- Items whose count is not the sum of their votes and the balance: their number; and the id, count
-- and sum of votes of the first by id.
SELECT COUNT(*)
{differing}
-- name: first_differing
SELECT hc_i.{id}, {own_count(hc_i)}, {voted}
{differing}
ORDER BY hc_i.{id}
LIMIT 1

-- name: differing
-- Votes are summed once for all items: the application's table may have no index by item.
FROM {item} AS hc_i
--if all_votes
LEFT JOIN (SELECT item, SUM(n) AS n FROM ({all_votes}) AS hc_v GROUP BY item) AS hc_s
ON hc_s.item = hc_i.{id}
--end
--if has_cells
WHERE {differs(({voted} + {opening(hc_i.{id})}))}
--else
WHERE {differs({voted})}
--end
-- name: all_votes
--if has_votes
SELECT {vote_item} AS item, {value} AS n FROM {vote}
--if has_anonymous
UNION ALL
--end
--end
--if has_anonymous
SELECT {vote_item} AS item, {value} AS n FROM {anonymous_vote}
--end
-- name: voted
--if all_votes
COALESCE(hc_s.n, 0)
--else
0
--end

-- name: differs
-- An item that counts nothing yet, NULL or 0, has no history that its votes could contradict: a
-- column that was added for hotcount beside votes that were there. Its votes are counted.
{own_count(hc_i)} <> 0 AND {own_count(hc_i)} <> {1}

-- name: keep_openings
-- Writes the opening balances. Runs while votes are blocked.
INSERT INTO {cell} (item, slot, n, ver)
SELECT hc_i.{id}, {opening_slot}, {own_count(hc_i)} - {owed(hc_i.{id})}, 1
FROM {item} AS hc_i
WHERE {differs({owed(hc_i.{id})})}
{or_update(item, slot)}
n = {cell}.n + {excluded(n)}

-- name: too_large
-- The item of a balance beyond 64 bits, which becomes a real on SQLite.
SELECT item FROM {cell} WHERE slot = {opening_slot} AND typeof(n) <> 'integer' LIMIT 1

-- == From the votes to the journal, beside voters ==

-- name: fill_openings
-- Writes the opening balances. These statements do nothing if the tables are counted.
INSERT INTO {cell} (item, slot, n, ver)
SELECT hc_i.{id}, {opening_slot}, {own_count(hc_i)} - COALESCE(hc_s.n, 0), 1
{uncounted_items}
    AND {own_count(hc_i)} <> 0 AND {own_count(hc_i)} <> COALESCE(hc_s.n, 0)

-- name: fill_journal
-- Writes the sum of each item's votes as a journal row. A row of 0 makes a fold update the item's
-- own count. Votes that triggers have noted in the journal already are in the sum too, and are
-- subtracted.
INSERT INTO {journal} (item, diff)
SELECT hc_i.{id}, COALESCE(hc_s.n, 0) - {pending(hc_i.{id})}
{uncounted_items}
    AND (hc_s.n IS NOT NULL OR {own_count(hc_i)} <> 0 OR {pending(hc_i.{id})} <> 0)

-- name: uncounted_items
FROM {item} AS hc_i
LEFT JOIN (SELECT item, SUM(n) AS n FROM ({votes_of_both}) AS hc_v GROUP BY item) AS hc_s
ON hc_s.item = hc_i.{id}
WHERE {uncounted}
-- name: votes_of_both
SELECT {vote_item} AS item, {value} AS n FROM {vote}
UNION ALL
SELECT {vote_item}, {value} FROM {anonymous_vote}
-- name: uncounted
NOT EXISTS (SELECT 1 FROM {meta} WHERE name = 'counted_in')

-- name: fill_marks
-- Writes the marks: place, strategy and route.
INSERT INTO {meta} (name, value)
SELECT hc_m.mark, hc_m.is_now
FROM (
    SELECT 'counted_in' AS mark, {place} AS is_now
    UNION ALL
    SELECT 'counted_by', {strategy}
    UNION ALL
    SELECT 'vote_route', {route}
) AS hc_m
WHERE {uncounted}
{or_update(name)}
value = {excluded(value)}

-- name: ask_folds
-- Asks for a fold of every item: a column of counts was added to tables that are counted.
INSERT INTO {journal} (item, diff) SELECT DISTINCT item, 0 FROM {cell};

-- name: any_cell
-- Whether any cell is there.
SELECT COUNT(*) FROM (SELECT 1 FROM {cell} LIMIT 1) AS hc_c
