-- The marks: rows (name, value) of vote_meta.

-- == Where the counts are ==

-- The place of the counts; how votes get to the tables; the strategy that create_tables() was
-- last called with; when the last fold began.
-- name: read_place
SELECT value FROM {meta} WHERE name = 'counted_in'
-- name: read_route
SELECT value FROM {meta} WHERE name = 'vote_route'
-- name: read_strategy
SELECT value FROM {meta} WHERE name = 'counted_by'
-- name: read_folded
SELECT value FROM {meta} WHERE name = 'folded_at'

-- How votes get to the tables, which nobody changes in this transaction.
-- name: hold_route
{read_route}
{for_share}

-- Waits for others who reconcile or fold. Voters neither read nor write this mark.
-- name: reconcile_alone
SELECT value FROM {meta} WHERE name = 'schema' {for_update}

-- Writes place, strategy and route, and the database's clock.
-- name: write_marks
INSERT INTO {meta} (name, value)
VALUES ('counted_in', {place}), ('counted_by', {strategy}), ('vote_route', {route}),
    ('folded_at', CAST({now_microseconds} AS {text_cast}))
{or_update(name)}
value = {excluded(value)}

-- Whether tables have the mark of a release without a journal, and the statement that replaces
-- it.
-- name: has_old_mark
{mark('counted_in')} = {old_place}
-- name: replace_old_mark
UPDATE {meta}
SET value = {place}
WHERE name IN ('counted_in', 'vote_route') AND value = {old_place};

-- Writes the form of the triggers that count what others write, or takes it away.
-- name: write_outside
INSERT INTO {meta} (name, value)
VALUES ('outside_writes', {form})
{or_update(name)}
value = {excluded(value)};
-- name: remove_outside
DELETE FROM {meta} WHERE name = 'outside_writes';

-- == Streams of write_behind ==

-- name: read_streams
SELECT name, value
FROM {meta}
WHERE name IN (
    'stream_id', 'stream_floor', 'stream_life', 'stream_open', 'stream_fence', 'stream_names'
)

-- Whether votes may wait in the streams.
-- name: read_stream_open
SELECT name, value FROM {meta} WHERE name = 'stream_open'

-- One of them, for this transaction alone.
-- name: lock_stream_open
{read_stream_open} {for_update}
-- name: lock_stream_floor
SELECT name, value FROM {meta} WHERE name = 'stream_floor' {for_update}
-- name: lock_stream_fence
SELECT name, value FROM {meta} WHERE name = 'stream_fence' {for_update}

-- The fence, which nobody raises in this transaction.
-- name: hold_fence
SELECT value FROM {meta} WHERE name = 'stream_fence' {for_share}

-- The highest version of any vote of a user.
-- name: highest_version
SELECT COALESCE(MAX({version}), 0) FROM {vote}

-- Begins streams: their id ?1, floor ?2 and fence ?3; nothing if there are such.
-- name: begin_streams
INSERT INTO {meta} (name, value)
VALUES ('stream_id', ?1), ('stream_floor', ?2), ('stream_life', '0'), ('stream_open', '0'),
    ('stream_fence', ?3)
{or_nothing(name)}

-- Sets the mark ?1 to ?2.
-- name: set
UPDATE {meta} SET value = ?2 WHERE name = ?1

-- The id of the streams, then those of former ones.
-- name: read_stream_names
SELECT value FROM {meta} WHERE name IN ('stream_id', 'stream_names') ORDER BY name

-- Forgets the streams, and keeps their names ?1.
-- name: forget_streams
DELETE FROM {meta}
WHERE name IN ('stream_id', 'stream_floor', 'stream_life', 'stream_open', 'stream_fence')
-- name: keep_stream_names
INSERT INTO {meta} (name, value)
VALUES ('stream_names', ?1)
{or_update(name)}
value = {excluded(value)}

-- == Copies of counts ==

-- The name under which copies of these counts stand in a cache.
-- name: read_copies_id
SELECT value FROM {meta} WHERE name = 'copies_id'
-- Sets it to ?1 if there is none.
-- name: write_copies_id
INSERT INTO {meta} (name, value) VALUES ('copies_id', ?1) {or_nothing(name)}

-- == Heartbeats for replicas ==

-- On the replica: the heartbeat, whether the server is a standby, and which server it is.
-- name: read_beat
SELECT value, {is_standby}, {server_identity} FROM {meta} WHERE name = 'heartbeat'

-- On the primary: its clock, the heartbeat, and which server it is.
-- name: look_at_primary
SELECT {now_microseconds}, {mark('heartbeat')}, {server_identity}

-- Writes the heartbeat ?1; the first one if there is none.
-- name: beat
UPDATE {meta} SET value = ?1 WHERE name = 'heartbeat'
-- name: first_beat
INSERT INTO {meta} (name, value) VALUES ('heartbeat', ?1) {or_nothing(name)}
