"""Explores a model: every order of its steps, each state once; or orders that are drawn."""

import random
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)


class Findings:
    """What an exploration met."""

    def __init__(self) -> None:
        self.states = 0
        self.faults: dict[str, list[str]] = {}  # With the steps that led to the first of each.
        self.waits: set[tuple[str, str]] = set()  # Who waited, and for whom.

    def note(self, fault: str, way: list[str]) -> None:
        self.faults.setdefault(fault, way)

    def __repr__(self) -> str:
        return "\n".join(f"{fault}: {' > '.join(way)}" for fault, way in self.faults.items())


class Model(Generic[State]):
    """A state is immutable and hashable."""

    def moves(self, state: State, findings: Findings) -> Iterator[tuple[str, State]]:
        """Each step that somebody can take now: its name, and the state after it."""
        raise NotImplementedError

    def faults(self, state: State) -> Iterator[str]:
        """What is wrong with a state."""
        raise NotImplementedError

    def faults_between(self, before: State, after: State) -> Iterator[str]:
        """What is wrong with a step."""
        return iter(())

    def may_end(self, state: State) -> bool:
        """Whether no process has work left. Otherwise a state without moves is a fault."""
        raise NotImplementedError


STUCK = "nobody can go on"


def explore(
    model: Model[State], start: State, limit: int = 5_000_000, until: frozenset[str] = frozenset()
) -> Findings:
    """Every order of the steps, each state once; more states than the limit fail. It ends once all
    faults of `until` are found."""
    findings = Findings()
    came: dict[State, tuple[State | None, str]] = {start: (None, "start")}
    todo = [start]

    def way_to(state: State) -> list[str]:
        way = []
        at: State | None = state
        while at is not None:
            at, step = came[at]
            way.append(step)
        return way[::-1]

    while todo and not (until and until <= set(findings.faults)):
        state = todo.pop()
        findings.states += 1
        assert findings.states <= limit, "the bounds are too large"
        for fault in model.faults(state):
            if fault not in findings.faults:
                findings.note(fault, way_to(state))
        stuck = True
        for step, after in model.moves(state, findings):
            stuck = False
            for fault in model.faults_between(state, after):
                if fault not in findings.faults:
                    findings.note(fault, [*way_to(state), step])
            if after not in came:
                came[after] = (state, step)
                todo.append(after)
        if stuck and not model.may_end(state) and STUCK not in findings.faults:
            findings.note(STUCK, way_to(state))
    return findings


def simulate(model: Model[State], start: State, *, seed: int, walks: int) -> Findings:
    """Drawn orders, for bounds that are too large to explore."""
    drawn = random.Random(seed)
    findings = Findings()
    for _ in range(walks):
        state, way = start, ["start"]
        while True:
            findings.states += 1
            for fault in model.faults(state):
                findings.note(fault, list(way))
            moves = list(model.moves(state, findings))
            if not moves:
                break
            # Most live: else each walk ends with its first deaths.
            lives = [move for move in moves if not move[0].endswith(" dies")]
            step, after = drawn.choice(moves if drawn.random() < 0.05 else lives or moves)
            way.append(step)
            for fault in model.faults_between(state, after):
                findings.note(fault, list(way))
            state = after
        if not model.may_end(state):
            findings.note(STUCK, way)
    return findings
