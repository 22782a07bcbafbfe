-- Reads of counts and votes. Each is one statement, which sees one snapshot and locks nothing.

-- == Counts ==

-- name: count_of_item
-- The number {2} and the count of item {1}, the place where counts are, and how many journal rows
-- were summed.
--if in_journal
SELECT {2}, {cells({1})} + COALESCE(SUM(diff), 0), {mark('counted_in')}, COUNT(*)
FROM {journal}
WHERE item = {1}
--else
--if in_item
SELECT {2}, {sum({count}, {item}, {id} = {1})}, {mark('counted_in')}, 0
--else
SELECT {2}, {cells({1})}, {mark('counted_in')}, 0
--end
--end

-- name: grouped_counts
-- The id, the count, the place and the number of journal rows of the items among ?1 and up that
-- have any. A row without an id returns the place if no item has a count.
SELECT hc_id, SUM(hc_n), {mark('counted_in')}, SUM(hc_rows)
FROM (
--if in_item
    SELECT {id} AS hc_id, {own_count({item})} AS hc_n, 0 AS hc_rows
    FROM {item}
    WHERE {id} IN ({items})
--else
    SELECT item AS hc_id, SUM(n) AS hc_n, 0 AS hc_rows
    FROM {cell}
    WHERE item IN ({items})
    GROUP BY item
--end
--if in_journal
    UNION ALL
    SELECT item AS hc_id, SUM(diff), COUNT(*)
    FROM {journal}
    WHERE item IN ({items})
    GROUP BY item
--end
    UNION ALL
    SELECT NULL, 0, 0
) AS hc_u
GROUP BY hc_id
-- name: items
--each ,
?1
--end

-- == Votes ==

-- name: get
-- The vote of user ?2 for item ?1.
{vote_of_user({item_id(?1)}, {user_id(?2)})}
-- name: vote_of_user
SELECT {value} FROM {vote} WHERE {vote_item} = {1} AND {vote_user} = {2}

-- name: lock_vote
-- Value, old value and version of the vote of user ?2 for item ?1, locked. No row without a vote.
SELECT {value}, {previous}, {version}
FROM {vote}
WHERE {vote_item} = {item_id(?1)} AND {vote_user} = {user_id(?2)}
{for_update}

-- name: votes_of_user
-- The votes of user ?1 for the items ?2 and up, as the columns of one row. The database finds an
-- id's row by its own collation, and the answers are in order.
SELECT
--each ,
(SELECT {value} FROM {vote} WHERE {vote_item} = ?2 AND {vote_user} = ?1)
--end

-- name: voters
-- User and value of the next votes for item ?1 that count, in the order of the users: at most ?2,
-- or ?3 that follow user ?2. Rows of an application's own table may have no user.
{voters_of({item_id(?1)}, {user_id(?2)})}
-- name: voters_of
SELECT {vote_user}, {value}
FROM {vote}
WHERE {vote_item} = {1} AND {value} <> 0 AND
--if after
{vote_user} > {2}
ORDER BY {vote_user}
LIMIT ?3
--else
{vote_user} IS NOT NULL
ORDER BY {vote_user}
LIMIT ?2
--end

-- name: tally
-- Of item ?1: the number of votes above 0, the number below 0, and the sum.
SELECT COALESCE(SUM(CASE WHEN val > 0 THEN 1 ELSE 0 END), 0),
    COALESCE(SUM(CASE WHEN val < 0 THEN 1 ELSE 0 END), 0),
    COALESCE(SUM(val), 0)
FROM (
    SELECT {value} AS val FROM {vote} WHERE {vote_item} = {item_id(?1)}
    UNION ALL
    SELECT {value} AS val FROM {anonymous_vote} WHERE {vote_item} = {item_id(?1)}
) AS hc_v

-- name: top
-- The ?1 items with the highest counts. Both columns descend, because an index over both is read
-- backwards. A count of NULL is excluded; it would come first on PostgreSQL.
SELECT {id}
FROM {item}
WHERE {count} IS NOT NULL
ORDER BY {count} DESC, {id} DESC
LIMIT ?1
