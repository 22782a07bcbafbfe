-- The marks: rows (name, value) of vote_meta.

-- == Where the counts are ==

-- name: read_place
-- The place of the counts.
SELECT value FROM {meta} WHERE name = 'counted_in'
-- name: read_route
-- How votes get to the tables.
SELECT value FROM {meta} WHERE name = 'vote_route'
-- name: read_strategy
-- The strategy of the last create_tables().
SELECT value FROM {meta} WHERE name = 'counted_by'
-- name: read_folded
-- When the last fold began.
SELECT value FROM {meta} WHERE name = 'folded_at'

-- name: hold_route
-- The vote route. The shared lock keeps it until the transaction ends.
{read_route}
{for_share}

-- name: reconcile_alone
-- Waits for other reconciles and folds. Voters neither read nor write this mark.
SELECT value FROM {meta} WHERE name = 'schema' {for_update}

-- name: note_settling
-- Written by each reconcile that corrects counts, with reconcile_alone's lock: nodes of a cluster that
-- do not see each other's locks certify what is written. Its name comes after that of the locked mark,
-- as all marks are locked in order.
{set_mark('settled_at', CAST({now_microseconds} AS {text_cast}))}

-- name: read_move
-- When the counts were last moved while other nodes of a cluster might vote. No row if the last votes
-- of these nodes are counted.
SELECT value FROM {meta} WHERE name = 'moved_at'
-- name: forget_move
-- Removes the mark of the move ?1: the last votes of all nodes are counted.
DELETE FROM {meta} WHERE name = 'moved_at' AND value = ?1

-- name: write_marks
-- Writes place, strategy and route, and the database's clock.
INSERT INTO {meta} (name, value)
VALUES ('counted_in', {place}), ('counted_by', {strategy}), ('vote_route', {route}),
    ('folded_at', CAST({now_microseconds} AS {text_cast}))
{or_update(name)}
value = {excluded(value)}

-- name: write_outside
-- Writes the form of the triggers that count outside writes.
{set_mark('outside_writes', {form})};
-- name: remove_outside
DELETE FROM {meta} WHERE name = 'outside_writes';

-- == Streams of write_behind ==

-- name: read_streams
SELECT name, value
FROM {meta}
WHERE name IN (
    'stream_id', 'stream_floor', 'stream_life', 'stream_open', 'stream_fence', 'stream_names'
)

-- name: read_stream_open
-- Whether votes may wait in the streams.
SELECT name, value FROM {meta} WHERE name = 'stream_open'

-- name: lock_stream_open
-- As read_stream_open, and locks the mark until the transaction ends.
{read_stream_open} {for_update}
-- name: lock_stream_floor
SELECT name, value FROM {meta} WHERE name = 'stream_floor' {for_update}
-- name: lock_stream_fence
SELECT name, value FROM {meta} WHERE name = 'stream_fence' {for_update}

-- name: hold_fence
-- The fence. The shared lock keeps it until the transaction ends.
SELECT value FROM {meta} WHERE name = 'stream_fence' {for_share}

-- name: highest_version
-- The highest version of any vote of a user.
SELECT COALESCE(MAX({version}), 0) FROM {vote}

-- name: begin_streams
-- Inserts the marks of streams, with id ?1, floor ?2 and fence ?3; keeps marks that exist.
INSERT INTO {meta} (name, value)
VALUES ('stream_id', ?1), ('stream_floor', ?2), ('stream_life', '0'), ('stream_open', '0'),
    ('stream_fence', ?3)
{or_nothing(name)}

-- name: set
-- Sets the mark ?1 to ?2.
UPDATE {meta} SET value = ?2 WHERE name = ?1

-- name: read_stream_names
-- The id of the streams, then the former ids.
SELECT value FROM {meta} WHERE name IN ('stream_id', 'stream_names') ORDER BY name

-- name: forget_streams
-- Forgets the streams, and keeps their names ?1.
DELETE FROM {meta}
WHERE name IN ('stream_id', 'stream_floor', 'stream_life', 'stream_open', 'stream_fence')
-- name: keep_stream_names
{set_mark('stream_names', ?1)}

-- == Copies of counts ==

-- name: read_copies_id
-- The name under which copies of these counts stand in a cache.
SELECT value FROM {meta} WHERE name = 'copies_id'
-- name: write_copies_id
-- Sets copies_id to ?1 if it has no value.
{set_mark_once('copies_id', ?1)}

-- == Heartbeats for replicas ==

-- name: read_beat
-- On the replica: the heartbeat, whether the server is a standby, and which server it is.
SELECT value, {is_standby}, {server_identity} FROM {meta} WHERE name = 'heartbeat'

-- name: look_at_primary
-- On the primary: its clock, the heartbeat, and which server it is.
SELECT {now_microseconds}, {mark('heartbeat')}, {server_identity}

-- name: beat
-- Updates the heartbeat to ?1; first_beat inserts the first one.
UPDATE {meta} SET value = ?1 WHERE name = 'heartbeat'
-- name: first_beat
{set_mark_once('heartbeat', ?1)}
