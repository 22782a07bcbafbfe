-- How tables of the application's own are altered online on PostgreSQL: scripts for psql.
--
-- ALTER TABLE takes ACCESS EXCLUSIVE for as long as it takes to change the catalogue: a column with
-- a constant default rewrites nothing, an index is built CONCURRENTLY and then becomes the
-- constraint, and a foreign key is added NOT VALID and then checked under a lock that lets voters
-- through.

-- name: impatiently
-- {statements} that wait at most 2 s for a lock, because every later session queues behind a
-- waiting one. The limit is the transaction's, not the session's: a pooler would pass a session's
-- limit on.
{begin_impatiently}
{statements}
COMMIT;

-- name: begin_impatiently
BEGIN;
SET LOCAL lock_timeout = '2s';

-- name: add_columns
{begin_impatiently}
ALTER TABLE {table} {columns};
COMMIT;

-- name: add_default
{begin_impatiently}
ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT {default};
COMMIT;

-- name: make_index
-- Waits for older transactions, and blocks no voter.
--if unfinished
DROP INDEX CONCURRENTLY {index};
--end
CREATE {unique} INDEX CONCURRENTLY {index_name} ON {table} ({columns});

-- name: add_key
{make_index}
{begin_impatiently}
ALTER TABLE {table} ADD CONSTRAINT {index_name} UNIQUE USING INDEX {index_name};
COMMIT;

-- name: add_reference
--if !unchecked
{begin_impatiently}
ALTER TABLE {vote} ADD CONSTRAINT {key}
    FOREIGN KEY ({vote_item}) REFERENCES {item} ({id}) NOT VALID;
COMMIT;
--end
{begin_impatiently}
ALTER TABLE {vote} VALIDATE CONSTRAINT {key};
COMMIT;
