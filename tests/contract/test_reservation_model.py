"""The scripts' arithmetic of reservations against a model in fractions, on a given clock."""

import random
from typing import Any

import hotcount
import pytest

from tests.contract.test_limiter_vectors import VECTORS
from tests.support.limiter_models import MODELS, Answer, merge
from tests.support.scripts import answers_of

LOOK, TAKE, WHAT_FITS, RESERVE, COMMIT = range(5)
WORDS = ("0", "1", "2", "4", "5")
# The rate that is left out takes no reservations: what is used beyond them would not be exact.
CASES = [
    case
    for case in VECTORS
    if case["algorithm"] != "sliding_log"
    and case["name"] != "gcra 999983/hour"
    and not case.get("ahead")
]
# now, what, cost or what was used, lease, id
Step = tuple[int, int, int, int, str]


def run_script(redis: hotcount.Redis, case: dict[str, Any], steps: list[Step]) -> list[Answer]:
    calls = []
    for now, what, n, lease, name in steps:
        argument = {RESERVE: f"{n} {lease} {name}", COMMIT: f"{n} {name}"}.get(what, str(n))
        calls.append((now, WORDS[what], argument))
    answers = []
    for parts in answers_of(redis, case, calls):
        merged = merge(parts)
        merged[0] = min(part[0] for part in parts)
        answers.append(merged)
    return answers


class Key:
    """The algorithm's own model at each rate, and what is held: id -> (n, when the lease ends)."""

    def __init__(self, case: dict[str, Any]) -> None:
        rates = case.get("rates") or [[case["limit"], case["period"], case["burst"]]]
        self.laws = [MODELS[case["algorithm"]](rate, case["first"]) for rate in rates]
        self.charges = case["charge_denied"]
        self.live: dict[str, tuple[int, int]] = {}

    def answer(self, now: int, step: Step) -> Answer:
        _, what, n, lease, name = step
        self.live = {id: one for id, one in self.live.items() if one[1] > now}
        for law in self.laws:
            law.turn_to(now)
        if what == COMMIT:
            return self.commit(now, n, name)
        if what == RESERVE and name in self.live:
            return [1, self.room(now), 0, self.resets(now)]
        cost = n
        if what == WHAT_FITS:
            cost = max(min(cost, self.room(now)), 1)
        held = self.held()
        fits = [law.fits(now, cost + held) for law in self.laws]
        admissible = all(cost <= law.most for law in self.laws)
        admits = all(fits)
        takes = what in (TAKE, WHAT_FITS)
        charges = self.charges and admissible and what == TAKE
        if takes and (admits or charges):
            for law in self.laws:
                law.take(now, cost)
        refusals = [
            self.retry(law, now, cost) for law, one in zip(self.laws, fits, strict=True) if not one
        ]
        if what == RESERVE and admits:
            self.live[name] = (n, now + lease)
        retry = 0 if admits else -1 if -1 in refusals else max(refusals)
        taken = (cost if what == WHAT_FITS and admits else 1) if admits else 0
        # A lease asks when what it takes has flowed back, or when its window ends.
        resets = self.laws_reset(now) if what == WHAT_FITS else self.resets(now)
        return [taken, self.room(now), retry, resets]

    def commit(self, now: int, used: int, name: str) -> Answer:
        self.live.pop(name, None)
        fits = used == 0 or all(law.fits(now, used) for law in self.laws)
        for law in self.laws:
            law.take(now, used)
        retry = 0
        if not fits:
            held = self.held()
            waits = [0 if law.fits(now, 1 + held) else self.retry(law, now, 1) for law in self.laws]
            retry = max(waits)
        return [int(fits), self.room(now), retry, self.resets(now)]

    def held(self) -> int:
        return sum(n for n, _ in self.live.values())

    def room(self, now: int) -> int:
        left: int = min(law.remaining(now) for law in self.laws) - self.held()
        return max(left, 0)

    def laws_reset(self, now: int) -> int:
        return max(int(law.reset_after(now)) for law in self.laws)

    def resets(self, now: int) -> int:
        return max([self.laws_reset(now), *(ends - now for _, ends in self.live.values())])

    def retry(self, law: Any, now: int, cost: int) -> int:
        """The first moment at which a lease has ended or what was used has flowed back enough."""
        if cost > law.most:
            return -1
        moments = []
        for ended in [now, *sorted(ends for _, ends in self.live.values())]:
            held = sum(n for n, ends in self.live.values() if ends > ended)
            if cost + held > law.most:
                continue
            wait = 0 if law.fits(now, cost + held) else law.retry_after(now, cost + held)
            moments.append(max(wait, ended - now))
        return min(moments)


def random_steps(case: dict[str, Any], seed: int, count: int) -> list[Step]:
    chance = random.Random(seed)
    now = 1_800_000_000_000_000 + chance.randrange(10**9)
    most, period = case["burst"], case["period"]
    steps: list[Step] = []
    for _ in range(count):
        now += chance.choice([0, 1, chance.randrange(2 * period // most + 2)])
        what = chance.choice([LOOK, TAKE, TAKE, WHAT_FITS, RESERVE, RESERVE, RESERVE, COMMIT])
        n = chance.choice([1, 1, chance.randint(1, most), chance.randint(1, most // 3 + 1), most])
        if what == COMMIT:
            n = chance.choice([0, n])
        lease = chance.choice([1, chance.randrange(1, period // most + 2), period])
        steps.append((now, what, n, lease, f"id-{chance.randrange(8)}"))
    return steps


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_reservations_fit_the_model(redis: hotcount.Redis, case: dict[str, Any], seed: int) -> None:
    steps = random_steps(case, seed, 60)
    key = Key(case)
    expected = [key.answer(step[0], step) for step in steps]
    answers = run_script(redis, case, steps)
    for index, (answer, right) in enumerate(zip(answers, expected, strict=True)):
        assert answer == right, (index, steps[: index + 1])
