"""Rules of write_behind that stream_model.py can leave out, and the faults that it then finds.

docs/explanation/write-behind.md explains fence, floor and life.
"""

from dataclasses import dataclass

GHOST = "an erased vote is back"
MISSING = "a vote cast after the erasure is missing"
UNDONE = "a write of another strategy is undone"
OLDER = "an older vote stands"
LOST = "an acknowledged vote is lost"
FLUSHED = "flush() reports that nothing waits, and votes wait"
KEPT = "Redis keeps the id of an erased user"
WAITS = "a vote waits that no worker may take"


@dataclass(frozen=True)
class Rules:
    mark_names_writers: bool = True  # While write_behind has the mark, no other strategy writes.
    drains: bool = True  # An erasure deletes only when the votes cast before it are in SQL.
    fence: bool = True  # An erasure raises the fence, ...
    fence_rises: bool = True  # ... never lowers it, ...
    fence_at_clock: bool = True  # ... raises it at least to Redis's clock, ...
    fence_to_floor: bool = True  # ... beyond the floor ...
    fence_beyond: bool = True  # ... and beyond the fence before.
    fence_filters: bool = True  # Workers drop entries up to the fence, ...
    # ... and write nothing if it was raised since they took the page.
    fence_in_statement: bool = True
    # Workers raise the last id of a stream that a snapshot set back behind the fence.
    raises_last_id: bool = True
    # The fence belongs to a name of the streams: each name has its own.
    fence_has_name: bool = True
    # An erasure of an item and its row repeats while it deletes rows newer than its fence.
    erases_again: bool = True
    erases_to_fence: bool = True  # Other erasures leave rows newer than their fence; ...
    prunes_to_fence: bool = True  # ... so does pruning.
    floor_to_fence: bool = True  # A stream that is made anew begins behind the fence.
    life_before_fence: bool = True  # An erasure begins again if a stream was made meanwhile.
    # The life rises when a stream is made, not only when its maker notes it.
    life_when_made: bool = True
    # A late call makes no stream in a life in which it was closed.
    refuses_closed_life: bool = True
    reads_name: bool = True  # A call reads the name; otherwise it uses the name of the call before.
    checks_name: bool = True  # A call checks the name where it uses it, under the lock.
    floor_by_name: bool = True  # A worker remembers its reserved floor by name and life.
    one_stream: bool = True  # Items that the database takes for equal have one stream.
    # Workers take over entries that were delivered ahead of the clock.
    takes_over_ahead: bool = True
    # A user's older votes are settled with the last one only if SQL takes that.
    keeps_older: bool = True
    forgets_refused: bool = True  # An erasure of a user deletes the refused votes of that user.
    # Workers trim refused votes that a snapshot brought back from before the fence.
    trims_refused: bool = True
    drops_former: bool = True  # Workers drop the streams of former names.
    reopens: bool = True  # Workers set the mark again if a snapshot brought back a closed stream.
    # A missing stream's fence is raised to the floor at that time.
    fence_to_floor_of_now: bool = True
    keeps_least: bool = True  # A missing stream that a late call makes begins beyond the fence.
    last_id_rises: bool = True  # A worker that raises ids never lowers one.
    closed_rises: bool = True  # A late call never lowers the life in which a stream was closed.
    trims_by_vote: bool = True  # Refused votes are trimmed by the ids that they had as votes.
    # The protocol promises no more: the checks excuse these votes and assume these conditions.
    stray: bool = True  # Votes in a closed stream that a snapshot has revived.
    behind: bool = True  # Votes whose ids Redis had given before, when it and its clock went back.
    restarts_late: bool = True  # Redis restarts later than its ids are ahead of its clock.
    late_pages: bool = True  # Lost votes with such ids, which a worker writes during an erasure.
    # Redis and its clock do not go back between an erasure's first two steps.
    moves_at_once: bool = True
