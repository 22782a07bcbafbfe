-- How the application's own tables are altered on MariaDB and MySQL (adopter.cpp). These are
-- scripts that an administrator reads. Each ALTER names its ALGORITHM and LOCK, so that the server
-- refuses it where it would copy the table or keep writers out.

-- name: begin_altering
--> All sessions queue behind one that waits for the lock of a table, so each statement gives up
--> after 2 s. After an error print the migration again: it has the rest. Other users that vote need
--> SELECT, INSERT, UPDATE and DELETE on both tables and on the new ones.
SET SESSION lock_wait_timeout = 2;

-- name: add_columns
--> Of the catalogue only: no row is rewritten.
ALTER TABLE {table} {columns}ALGORITHM=INSTANT;

-- name: default_to_now
-- In parentheses: as an expression, which is all that MySQL takes here.
--> A vote does not name this column.
ALTER TABLE {table} ALTER COLUMN {column}
SET DEFAULT (CURRENT_TIMESTAMP{digits}), ALGORITHM=INSTANT;

-- name: add_key
ALTER TABLE {table} ADD UNIQUE INDEX {key} ({first}, {second}), {online}

-- name: add_index
--> For sums over the votes of an item.
ALTER TABLE {table} ADD INDEX {index} ({column}), {online}

-- name: online
ALGORITHM=INPLACE, LOCK=NONE;

-- name: add_foreign_key
--> Votes are for items that exist. To check the rows that are there the server would copy the table
--> and keep writers out, so it checks those of now on.
SET SESSION foreign_key_checks = 0;
ALTER TABLE {vote} ADD CONSTRAINT {key} FOREIGN KEY ({vote_item}) REFERENCES {item} ({id}), {online}
SET SESSION foreign_key_checks = 1;

-- name: begin
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION;

-- name: fill_journal
-- At READ COMMITTED, INSERT ... SELECT locks no row that it reads.
{begin}
SELECT value FROM {meta} WHERE name = 'folded_at' FOR UPDATE;
--if openings
{openings};
--end
{rows};
{marks};
COMMIT;
