-- Expressions that the statements over votes share. Every file of this folder may use them.

-- name: item_id
-- A parameter that is compared with a column of items' or users' ids. Its type is wide: an integer
-- that a narrower column cannot hold is not found, instead of an error.
--if integer_items
{typed({1}, bigint)}
--else
{1}
--end
-- name: user_id
--if integer_users
{typed({1}, bigint)}
--else
{1}
--end

-- name: own_count
-- The item's own count, where {1} names the item table: 0 for NULL, or if the table has no column
-- for it.
--if has_count
COALESCE({1}.{count}, 0)
--else
0
--end

-- name: sum
-- The sum of the expression {1} over the rows of table {2} for which {3} is true; 0 without rows.
(SELECT COALESCE(SUM({1}), 0) FROM {2} WHERE {3})

-- name: cells
-- Of the item {1}: the sum of its cells, that of its journal rows, and its opening balance.
{sum(n, {cell}, item = {1})}
-- name: pending
{sum(diff, {journal}, item = {1})}
-- name: opening
{sum(n, {cell}, slot = {opening_slot} AND item = {1})}

-- name: owed
-- The count that item {1} must have: the sum of its votes in both vote tables, and its opening
-- balance. owed_in appends {2} to each number before it sums: " >> 32" sums the upper halves.
({owed_in({1}, )})
-- name: owed_in
{sum({value} {2}, {vote}, {vote_item} = {1})}
+ {sum({value} {2}, {anonymous_vote}, {vote_item} = {1})}
+ {sum(n {2}, {cell}, slot = {opening_slot} AND item = {1})}

-- name: cell_totals
-- The sum of each item's cells.
(SELECT item, SUM(n) AS total FROM {cell} GROUP BY item)

-- name: for_each_row
-- The statement {1} for each of many rows. In it ?1 is the row's value and #1 the row's number.
--each UNION ALL
{1}
--end

-- name: mark
-- The value of the mark {1} in vote_meta.
(SELECT value FROM {meta} WHERE name = {1})

-- name: set_mark
-- Writes the mark {1} with the value {2}; set_mark_once does not change an existing mark.
INSERT INTO {meta} (name, value)
VALUES ({1}, {2})
{or_update(name)}
value = {excluded(value)}
-- name: set_mark_once
INSERT INTO {meta} (name, value) VALUES ({1}, {2}) {or_nothing(name)}

-- name: append_rows
-- A journal row for each pair of an item and a difference.
INSERT INTO {journal} (item, diff)
VALUES
--each ,
(?1, ?2)
--end

-- name: votes_with_user
-- The condition for votes of users, in either vote table. Rows without a user in an application's
-- own table have no key.
{vote_item} IS NOT NULL AND {vote_user} IS NOT NULL

-- name: votes_without_user
-- The condition for votes for item ?1 of value ?2 without a user. Only an application's own table
-- has such votes. Nothing tells two of one value apart.
{vote_item} = ?1 AND {value} = ?2 AND {vote_user} IS NULL

-- name: state_columns
-- The columns of a SyncState (votes/tables/sync_pages.hpp), and the tables that have them.
COALESCE(hc_s.epoch, 0), COALESCE(hc_s.gen, 0), COALESCE(hc_s.saved_gen, 0),
COALESCE(hc_s.saved_version, 0), COALESCE(hc_i.{count}, 0), COALESCE(hc_s.holder, ''),
COALESCE(hc_s.wide, 0), hc_i.{id}
-- name: state_tables
{item} AS hc_i LEFT JOIN {sync} AS hc_s ON hc_s.item = hc_i.{id}

-- name: list
-- The list of an IN: a parameter for each row. {1} is that of the first row.
--each ,
{1}
--end
