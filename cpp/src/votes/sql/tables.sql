-- The tables and views. Each statement does nothing if its table or view exists.

-- name: item_table
-- The item table, if the application has none.
CREATE TABLE IF NOT EXISTS {item} (
    {id} {item_type} NOT NULL PRIMARY KEY
--if has_count
    , {count} {integer} NOT NULL DEFAULT 0
--end
)
{item_table_end}
;

-- name: vote_table
-- One of the two tables of votes.
CREATE TABLE IF NOT EXISTS {vote} (
    {vote_item} {item_type} NOT NULL,
    {vote_user} {user_type} NOT NULL,
    {value} {integer} NOT NULL,
    {previous} {integer} NOT NULL DEFAULT 0,
    {version} {integer},
    PRIMARY KEY ({vote_item}, {vote_user})
--if foreign_key
    , FOREIGN KEY ({vote_item}) REFERENCES {item} ({id})
--end
) {table_end};

-- name: cell_table
-- Parts of the items' counts.
CREATE TABLE IF NOT EXISTS {cell} (
    item {item_type} NOT NULL,
    slot {integer} NOT NULL,
    n {integer} NOT NULL,
    ver {integer} NOT NULL,
    PRIMARY KEY (item, slot)
) {table_end};

-- name: meta_table
-- The marks.
CREATE TABLE IF NOT EXISTS {meta} (
    name {text} NOT NULL PRIMARY KEY,
    value {text} NOT NULL
) {table_end};
INSERT INTO {meta} (name, value)
VALUES ('schema', '1'), ('folded_at', '0'), ('fold_took', '0')
{or_nothing(name)};

-- name: live_view
-- The votes that count; a vote without a user has NULL as its user.
{create_view} {live} AS
SELECT {vote_item}, {vote_user}, {value} FROM {vote} WHERE {value} <> 0
UNION ALL
SELECT {vote_item}, NULL, {value} FROM {anonymous_vote};

-- name: count_view
-- The exact counts. The view reads the mark, so that it stays right through a change of strategy.
-- Without a column for the count, the mark has never named that column.
{create_view} {count_view} AS
SELECT hc_i.{id} AS item, CAST(CASE {mark('counted_in')}
--if is_server
    WHEN 'journal' THEN ({cells(hc_i.{id})} + {pending(hc_i.{id})})
--else
    WHEN 'cells' THEN {cells(hc_i.{id})}
--end
    WHEN 'cache' THEN {owed(hc_i.{id})}
--if has_count
    ELSE {own_count(hc_i)}
--else
    ELSE {owed(hc_i.{id})}
--end
    END AS {integer_cast}) AS n
FROM {item} AS hc_i;

-- name: settle
-- Sets all counts of a place, and the items' own, from the votes, while votes and folds are
-- blocked. Not TRUNCATE: older snapshots, such as a dump's, would see an empty table.
--if is_server
DELETE FROM {journal};
--end
--if in_item
UPDATE {item}
SET {count} = {owed({item}.{id})}
WHERE {differ({count}, {owed({item}.{id})})};
--else
{settle_cells}
{or_update(item, slot)}
--if in_journal
n = {cell}.n + {excluded(n)}, ver = GREATEST({cell}.ver + 1, {excluded(ver)});
--else
n = {cell}.n + {excluded(n)}, ver = {cell}.ver + 1;
--end
--if has_count
UPDATE {item}
SET {count} = {cells({item}.{id})}
WHERE {differ({count}, {cells({item}.{id})})};
--end
--end

-- name: settle_cells
-- The difference goes to the slot of folds, as a fold's: copies in a cache are as of that time.
INSERT INTO {cell} (item, slot, n, ver)
--if in_journal
SELECT {item}.{id}, {fold_slot}, {owed({item}.{id})} - {cells({item}.{id})}, {now_microseconds}
--else
SELECT {item}.{id}, 0, {owed({item}.{id})} - {cells({item}.{id})}, 1
--end
FROM {item}
WHERE {owed({item}.{id})} <> {cells({item}.{id})}
