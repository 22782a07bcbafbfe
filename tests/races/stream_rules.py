"""Rules of write_behind that stream_model.py can leave out, and the faults that it finds then."""

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
    mark_names_writers: bool = True  # Other strategies do not write while write_behind does.
    drains: bool = True  # The votes cast before an erasure are in SQL before it deletes.
    fence: bool = True  # An erasure raises it, ...
    fence_rises: bool = True  # ... never lowers it, ...
    fence_at_clock: bool = True  # ... raises it at least to Redis's clock, ...
    fence_to_floor: bool = True  # ... beyond the floor ...
    fence_beyond: bool = True  # ... and beyond the one before.
    fence_filters: bool = True  # Workers drop entries up to it, ...
    fence_in_statement: bool = True  # ... and write nothing if it was raised since.
    raises_last_id: bool = True  # Of a stream that a snapshot has set back behind the fence.
    fence_has_name: bool = True  # That of the streams: another name has another fence.
    erases_again: bool = True  # With the item, as long as it deletes rows newer than its fence.
    erases_to_fence: bool = True  # Without it, erasures leave newer rows; ...
    prunes_to_fence: bool = True  # ... so does pruning.
    floor_to_fence: bool = True  # A stream that is made anew begins behind the fence; ...
    life_before_fence: bool = True  # ... one that was made meanwhile has the erasure begin again.
    life_when_made: bool = True  # Of a stream; else when its maker has noted that it will be.
    refuses_closed_life: bool = True  # A call that was on its way for long makes no stream.
    reads_name: bool = True  # Once for each call; else it is remembered from the call before.
    checks_name: bool = True  # Where it is used, under the lock.
    floor_by_name: bool = True  # A worker remembers what it has reserved by name and life.
    one_stream: bool = True  # If the database takes different ids for equal.
    takes_over_ahead: bool = True  # What was delivered at a time that the clock has not reached.
    keeps_older: bool = True  # Votes of the user are settled with the last one if SQL takes that.
    forgets_refused: bool = True  # Of the user that is erased.
    trims_refused: bool = True  # Those from before the fence, which a snapshot has brought back.
    drops_former: bool = True  # Streams of former names, too.
    reopens: bool = True  # The mark, if a snapshot has brought back a stream that was closed.
    fence_to_floor_of_now: bool = True  # Where the erasure has found no stream.
    keeps_least: bool = True  # There a stream that a late call makes begins beyond the fence.
    last_id_rises: bool = True  # A worker that raises ids lowers none.
    closed_rises: bool = True  # Nor does a late call lower the life in which a stream was closed.
    trims_by_vote: bool = True  # Refused votes are trimmed by the ids that they had.
    # What the protocol does not promise is excused.
    stray: bool = True  # Votes in a closed stream that a snapshot has revived.
    behind: bool = True  # Votes with ids that Redis gave before it and its clock went back.
    restarts_late: bool = True  # Redis goes back for longer than its ids are ahead of its clock.
    late_pages: bool = True  # Lost votes with such ids, which a worker writes during an erasure.
    moves_at_once: bool = True  # Nor does it and its clock between an erasure's first two steps.
