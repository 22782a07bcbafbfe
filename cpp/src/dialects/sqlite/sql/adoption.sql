-- How the application's own tables are altered on SQLite (adopter.cpp).

-- name: begin_altering
--> Run it with sqlite3 -bail. After an error print the migration again: it has the rest.

-- name: add_column
ALTER TABLE {table} ADD COLUMN {column};

-- name: add_key
CREATE UNIQUE INDEX {key} ON {table} ({first}, {second});

-- name: add_index
CREATE INDEX {index} ON {table} ({column});

-- name: other_id
-- Whether {column}, which takes values of any type, has one that is not an id of the wanted type.
--if is_uuid
typeof({column}) NOT IN ('text', 'null')
OR length({column}) <> 36
OR {column} <> lower({column})
--else
typeof({column}) NOT IN ({type}, 'null')
--end
