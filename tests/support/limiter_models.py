"""What each algorithm of a limiter answers, from its definition, in exact fractions.

Independent of the core: no state is kept but the hits that were admitted or a level, and nothing is
rounded but the answers.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

Answer = list[int]  # allowed, remaining, retry_after or -1, reset_after; in microseconds
Hit = tuple[int, int]  # when, and its cost


# By how much the clock may go back, in microseconds, and stands still meanwhile.
SKEW = 100_000
# How long before its time a hit may be admitted, in microseconds.
AHEAD = 10_000


class Bucket:
    """At most burst, and what flows back since: gcra, and both buckets."""

    def __init__(self, rate: list[int], first: bool) -> None:
        self.limit, self.period, self.most = rate
        self.level, self.at = Fraction(0), 0

    def turn_to(self, now: int) -> None:
        if self.at - now > SKEW:
            self.at = now

    def owed(self, now: int) -> Fraction:
        paid = Fraction(max(now - self.at, 0) * self.limit, self.period)
        return max(Fraction(0), self.level - paid)

    def fits(self, now: int, cost: int) -> bool:
        return self.owed(now) + cost <= self.most

    def fits_ahead(self, now: int, cost: int) -> bool:
        """Whether it fits soon, and at least half of what it costs has flowed back."""
        if cost > self.most or self.at > now:
            return False
        early = self.owed(now) + cost - self.most
        return 2 * early <= cost and early * self.period / self.limit <= AHEAD

    def take(self, now: int, cost: int) -> None:
        self.level = min(self.owed(now) + cost, Fraction(2 * self.most))
        self.at = max(self.at, now)

    def remaining(self, now: int) -> int:
        return max(math.floor(self.most - self.owed(now)), 0)

    def retry_after(self, now: int, cost: int) -> int:
        wait = (self.owed(now) + cost - self.most) * self.period / self.limit
        return math.ceil(wait) + max(self.at - now, 0)

    def reset_after(self, now: int) -> int:
        owed = self.owed(now)
        return math.ceil(owed * self.period / self.limit) + max(self.at - now, 0) if owed else 0


class Window:
    """Windows of the clock, or from a first hit."""

    def __init__(self, rate: list[int], first: bool) -> None:
        self.most, self.period, _ = rate
        self.first, self.start, self.used = first, 0, 0

    def start_at(self, now: int) -> int:
        return now if self.first else now - now % self.period

    def turn_to(self, now: int) -> None:
        if self.start - now > SKEW:
            self.start = self.start_at(now)

    def at(self, now: int) -> tuple[int, int]:
        if self.used == 0 or now >= self.start + self.period:
            return self.start_at(now), 0
        return self.start, self.used

    def fits(self, now: int, cost: int) -> bool:
        return self.at(now)[1] + cost <= self.most

    def take(self, now: int, cost: int) -> None:
        self.start, used = self.at(now)
        self.used = min(used + cost, 2 * self.most)

    def remaining(self, now: int) -> int:
        return max(self.most - self.at(now)[1], 0)

    def retry_after(self, now: int, cost: int) -> int:
        return self.at(now)[0] + self.period - now

    def reset_after(self, now: int) -> int:
        start, used = self.at(now)
        return start + self.period - now if used else 0


class WeightedWindow:
    """A window of the clock and the share of the one before that is still within a period, as the
    nearest whole number of hits.
    """

    def __init__(self, rate: list[int], first: bool) -> None:
        self.most, self.period, _ = rate
        # As the core does where limit x period is too large for a microsecond's share.
        self.tick = -(-self.period // (2**50 // self.most))
        self.last, self.used = 0, dict[int, int]()  # By the window's number.

    def window(self, now: int) -> int:
        return max(now // self.period, self.last)

    def turn_to(self, now: int) -> None:
        if self.last * self.period - now > SKEW:
            by = self.last - now // self.period
            kept = (self.last, self.last - 1)
            self.used = {window - by: self.used.get(window, 0) for window in kept}
            self.last -= by

    def weight(self, now: int) -> int:
        window = self.window(now)
        elapsed = max(now - window * self.period, 0)
        ticks = -(-self.period // self.tick)
        share = Fraction(ticks - elapsed // self.tick, ticks)
        before = math.floor(self.used.get(window - 1, 0) * share + Fraction(1, 2))
        return self.used.get(window, 0) + before

    def fits(self, now: int, cost: int) -> bool:
        return self.weight(now) + cost <= self.most

    def take(self, now: int, cost: int) -> None:
        self.last = self.window(now)
        self.used[self.last] = min(self.used.get(self.last, 0) + cost, 2 * self.most)

    def remaining(self, now: int) -> int:
        return max(self.most - self.weight(now), 0)

    def retry_after(self, now: int, cost: int) -> int:
        # The weight only falls: the first moment that fits is found by halving.
        low, high = now, (self.window(now) + 2) * self.period
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.fits(middle, cost) else (middle + 1, high)
        return low - now

    def reset_after(self, now: int) -> int:
        window = self.window(now)
        for last in (window, window - 1):
            if self.used.get(last):
                return (last + 2) * self.period - now
        return 0


class Log:
    """Every hit of the last period."""

    def __init__(self, rate: list[int], first: bool) -> None:
        self.most, self.period, _ = rate
        self.hits: list[Hit] = []

    def last(self, now: int) -> int:
        return max(now, self.hits[-1][0]) if self.hits else now

    def turn_to(self, now: int) -> None:
        ahead = self.last(now) - now
        if ahead > SKEW:
            self.hits = [(at - ahead, cost) for at, cost in self.hits]

    def kept(self, now: int) -> list[Hit]:
        return [(at, cost) for at, cost in self.hits if at > self.last(now) - self.period]

    def held(self, now: int) -> int:
        return sum(cost for _, cost in self.kept(now))

    def fits(self, now: int, cost: int) -> bool:
        return self.held(now) + cost <= self.most

    def take(self, now: int, cost: int) -> None:
        self.hits = [*self.kept(now), (self.last(now), cost)]

    def remaining(self, now: int) -> int:
        return self.most - self.held(now)

    def retry_after(self, now: int, cost: int) -> int:
        ends = (at + self.period for at, _ in self.kept(now))
        return next(end - now for end in ends if self.fits(end, cost))

    def reset_after(self, now: int) -> int:
        kept = self.kept(now)
        return kept[-1][0] + self.period - now if kept else 0


MODELS: dict[str, Callable[[list[int], bool], Any]] = {
    "gcra": Bucket,
    "token_bucket": Bucket,
    "leaky_bucket": Bucket,
    "fixed_window": Window,
    "sliding_window": WeightedWindow,
    "sliding_log": Log,
}


def merge(answers: list[Answer]) -> Answer:
    """What the answers at each of several rates come to."""
    refusals = [retry for allowed, _, retry, _ in answers if not allowed]
    # Of those that are admitted: ahead of their time.
    waits = [retry for _, _, retry, _ in answers]
    retry = -1 if -1 in refusals else max(refusals or waits)
    return [
        int(not refusals),
        min(remaining for _, remaining, _, _ in answers),
        retry,
        max(reset for *_, reset in answers),
    ]


def model(case: dict[str, Any], hits: list[Hit]) -> list[Answer]:
    """The answers to a vector's hits, by its algorithm, at all of its rates together."""
    rates = case.get("rates") or [[case["limit"], case["period"], case["burst"]]]
    keys = [MODELS[case["algorithm"]](rate, case["first"]) for rate in rates]
    answers = []
    for now, cost in hits:
        for key in keys:
            key.turn_to(now)
        fits = [key.fits(now, cost) for key in keys]
        admissible = all(cost <= key.most for key in keys)
        waits = [0 for _ in keys]
        if case.get("ahead"):  # Of one rate.
            (key,) = keys
            if not fits[0] and key.fits_ahead(now, cost):
                fits, waits = [True], [key.retry_after(now, cost)]
        if all(fits) or (case["charge_denied"] and admissible):
            for key in keys:
                key.take(now, cost)
        parts = []
        for key, fitted, wait in zip(keys, fits, waits, strict=True):
            retry = wait if fitted else -1 if cost > key.most else key.retry_after(now, cost)
            parts.append([int(fitted), key.remaining(now), retry, key.reset_after(now)])
        answers.append(merge(parts))
    return answers
