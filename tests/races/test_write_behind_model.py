"""Strategy write_behind as a model: a voter, workers, a Redis that loses its data, a removal.

One user votes for one item, with 1, 2, 3 ... in this order: a later vote has a higher value.
Whatever dies, and in whatever order the steps come, the row in SQL must end with the last vote
that was acknowledged and not lost by Redis, or a later one. Each wrong variant has a hole, which
the checker must find. tests/contract/test_votes_write_behind.py and
tests/faults/test_write_behind.py drive the real ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from tests.races.explorer import Findings, Model, explore, simulate


class Entry(NamedTuple):
    id: int
    vote: int
    owner: int  # -1: nobody has taken it.


class Worker(NamedTuple):
    step: str  # idle, reserve, write, settle, dead
    page: tuple[Entry, ...]
    life: int = 0  # Of the stream, when the page was taken.
    # The page's time is over: it is not written any more, and others may take it.
    late: bool = False


IDLE = Worker("idle", ())


class World(NamedTuple):
    clock: int  # Of Redis.
    cast: int  # Votes acknowledged so far.
    safe: int  # The last of them that Redis has not lost.
    last: int | None  # The stream's last id; None: there is no stream.
    stream: tuple[Entry, ...]
    row: int  # The vote in SQL; 0: none.
    version: int
    floor: int
    life: int  # Of the stream, as SQL knows it: how often one was made.
    clock_of_workers: int
    workers: tuple[Worker, ...]
    losses: int  # That Redis may still suffer.
    deaths: int
    removal: str  # none, asked, done
    fence: int
    removed: int  # Votes up to this one were cast before the removal began ...
    gone: int  # ... and before it ended.


@dataclass(frozen=True)
class Rules:
    votes: int = 3
    settles_first: bool = False
    version_of_workers: bool = False
    has_floor: bool = True
    reserves_for_this_life: bool = True
    takes_over_at_once: bool = False
    removal_drains: bool = True


LOST = "an acknowledged vote is lost"
GHOST = "a vote is back that was cast before the removal"


class WriteBehind(Model[World]):
    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def moves(self, state: World, findings: Findings) -> Iterator[tuple[str, World]]:
        del findings
        yield from self.voter(state)
        yield from self.redis(state)
        yield from self.remover(state)
        for number in range(len(state.workers)):
            yield from self.worker(state, number)

    # -- the voter, and what happens to Redis -----------------------------------------------------

    def voter(self, state: World) -> Iterator[tuple[str, World]]:
        if state.cast == self.rules.votes:
            return
        if state.last is None:
            # The stream begins where the votes in SQL end.
            begin = state.floor if self.rules.has_floor else 0
            yield "open", state._replace(last=begin, life=state.life + 1)
            return
        # Redis gives an id by its clock, and never one that is not higher than the last.
        new = max(state.clock, state.last + 1)
        vote = state.cast + 1
        entry = Entry(new, vote, -1)
        yield (
            f"cast {vote}",
            state._replace(
                cast=vote, safe=vote, last=new, clock=new + 1, stream=(*state.stream, entry)
            ),
        )

    def redis(self, state: World) -> Iterator[tuple[str, World]]:
        if state.losses and state.last is not None:
            waiting = [entry.vote for entry in state.stream if entry.vote > state.row]
            safe = state.row if waiting else state.safe
            # And its clock is set back.
            yield (
                "all data is lost",
                state._replace(last=None, stream=(), clock=1, safe=safe, losses=state.losses - 1),
            )

    # -- a worker ---------------------------------------------------------------------------------

    def put(self, state: World, number: int, worker: Worker) -> World:
        workers = (*state.workers[:number], worker, *state.workers[number + 1 :])
        return state._replace(workers=workers)

    def settled(self, state: World, page: tuple[Entry, ...]) -> World:
        ids = {entry.id for entry in page}
        return state._replace(stream=tuple(each for each in state.stream if each.id not in ids))

    def worker(self, state: World, me: int) -> Iterator[tuple[str, World]]:
        worker = state.workers[me]
        if worker.step == "dead":
            return
        if state.deaths:
            dead = self.put(state, me, Worker("dead", worker.page, late=True))
            yield f"{me} dies", dead._replace(deaths=state.deaths - 1)
        if worker.step == "idle":
            for most in (1, 2):
                free = [entry for entry in state.stream if self.may_take(state, entry, me)][:most]
                if len(free) < most:
                    break
                page = tuple(entry._replace(owner=me) for entry in free)
                taken = {entry.id: entry for entry in page}
                stream = tuple(taken.get(entry.id, entry) for entry in state.stream)
                step = "settle" if self.rules.settles_first else "reserve"
                taker = Worker(step, page, life=state.life)
                after = self.put(state._replace(stream=stream), me, taker)
                yield f"{me} takes {most}", after
        elif worker.step == "reserve":
            newest = max(entry.id for entry in worker.page)
            of_this_life = worker.life == state.life or not self.rules.reserves_for_this_life
            if of_this_life:
                raised = state._replace(floor=max(state.floor, newest))
                yield f"{me} reserves", self.put(raised, me, worker._replace(step="write"))
            else:
                yield f"{me} leaves a page of a lost stream", self.put(state, me, IDLE)
        elif worker.step == "write":
            if not worker.late:
                # Its last moment has passed; a page that it has written is settled later.
                yield f"{me} is late", self.put(state, me, worker._replace(late=True))
            if not worker.late or self.rules.takes_over_at_once:
                yield f"{me} writes", self.written(state, me, worker)
            else:
                yield f"{me} leaves its page", self.put(state, me, IDLE)
        elif worker.step == "settle":
            next_step = worker._replace(step="reserve") if self.rules.settles_first else IDLE
            yield f"{me} settles", self.put(self.settled(state, worker.page), me, next_step)

    def may_take(self, state: World, entry: Entry, me: int) -> bool:
        if entry.owner in (-1, me) or self.rules.takes_over_at_once:
            return True
        owner = state.workers[entry.owner]
        has_it = any(each.id == entry.id for each in owner.page)
        return owner.step == "dead" or not has_it or owner.late

    def written(self, state: World, me: int, worker: Worker) -> World:
        row, version, clock = state.row, state.version, state.clock_of_workers
        for entry in worker.page:
            clock += 1
            of_vote = clock if self.rules.version_of_workers else entry.id
            if of_vote > version:
                row, version = entry.vote, of_vote
        after = IDLE if self.rules.settles_first else Worker("settle", worker.page)
        return self.put(state, me, after)._replace(row=row, version=version, clock_of_workers=clock)

    # -- a removal --------------------------------------------------------------------------------

    def remover(self, state: World) -> Iterator[tuple[str, World]]:
        if state.removal == "may":
            yield (
                "removal begins",
                state._replace(removal="asked", fence=state.last or 0, removed=state.cast),
            )
        elif state.removal == "asked":
            waiting = [entry for entry in state.stream if entry.id <= state.fence]
            if not waiting or not self.rules.removal_drains:
                yield "removal", state._replace(removal="done", row=0, version=0, gone=state.cast)

    # -- what is wrong ----------------------------------------------------------------------------

    def faults(self, state: World) -> Iterator[str]:
        if state.removal == "done" and 0 < state.row <= state.removed:
            yield GHOST
        ended = not state.stream and state.cast == self.rules.votes
        ended = ended and all(worker.step in ("idle", "dead") for worker in state.workers)
        if ended and state.row < state.safe and state.safe > state.gone:
            yield LOST

    def begins(self, *, losses: int = 0, deaths: int = 0, removal: str = "none") -> World:
        return World(
            clock=5,
            cast=0,
            safe=0,
            last=None,
            stream=(),
            row=0,
            version=0,
            floor=0,
            life=0,
            clock_of_workers=0,
            workers=(IDLE, IDLE),
            losses=losses,
            deaths=deaths,
            removal=removal,
            fence=0,
            removed=0,
            gone=0,
        )

    def may_end(self, state: World) -> bool:
        # What dead workers have, others take.
        alive = any(worker.step != "dead" for worker in state.workers)
        return not alive or (not state.stream and state.cast == self.rules.votes)


def check(rules: Rules, *, losses: int = 0, deaths: int = 0, removal: str = "none") -> Findings:
    model = WriteBehind(rules)
    return explore(model, model.begins(losses=losses, deaths=deaths, removal=removal))


@pytest.mark.parametrize(
    ("losses", "deaths", "removal"), [(0, 1, "none"), (1, 0, "none"), (1, 1, "none"), (0, 1, "may")]
)
def test_no_order_loses_an_acknowledged_vote(losses: int, deaths: int, removal: str) -> None:
    found = check(Rules(), losses=losses, deaths=deaths, removal=removal)
    assert found.states > 500
    assert found.faults == {}, found


def test_votes_that_are_acknowledged_before_they_are_written_are_lost_with_the_worker() -> None:
    assert LOST in check(Rules(settles_first=True), deaths=1).faults


def test_a_version_from_the_clock_of_the_workers_puts_an_older_vote_last() -> None:
    assert LOST in check(Rules(version_of_workers=True)).faults


def test_a_new_stream_that_begins_at_its_clock_loses_votes_against_older_ones() -> None:
    assert LOST in check(Rules(has_floor=False), losses=1).faults


def test_a_page_of_a_lost_stream_is_newer_than_votes_of_the_next_one() -> None:
    assert LOST in check(Rules(reserves_for_this_life=False), losses=1).faults


def test_a_worker_whose_page_was_taken_over_brings_a_removed_vote_back() -> None:
    assert GHOST in check(Rules(2, takes_over_at_once=True), removal="may").faults


def test_a_removal_that_does_not_wait_is_undone_by_a_waiting_vote() -> None:
    assert GHOST in check(Rules(2, removal_drains=False), removal="may").faults


def drawn(walks: int) -> None:
    model = WriteBehind(Rules(votes=8))
    # Not both at once: a removal cannot wait for a page that a worker has and Redis has lost.
    for start in (model.begins(losses=2, deaths=1), model.begins(deaths=1, removal="may")):
        four = start._replace(workers=(IDLE,) * 4)
        found = simulate(model, four, seed=18, walks=walks // 2)
        assert found.faults == {}, found


def test_1000_drawn_schedules_of_four_workers_lose_nothing() -> None:
    drawn(1_000)


@pytest.mark.long
@pytest.mark.timeout(800)
def test_100000_drawn_schedules_of_four_workers_lose_nothing() -> None:
    drawn(100_000)
