"""The keys that loads add to, drawn before the clock starts: without their prefix."""

from __future__ import annotations

import itertools
import random

BATCH = 1_000


def uniform(keys: int, size: int, seed: int) -> list[str]:
    """`size` names, drawn uniformly from `keys` names."""
    names = [f"k{index}" for index in range(keys)]
    return random.Random(seed).choices(names, k=size)


def distinct_batches(seed: int) -> list[list[str]]:
    """Batches that hold each of 1,000 keys once, in another order each."""
    names = [f"k{index}" for index in range(BATCH)]
    draw = random.Random(seed)
    return [draw.sample(names, BATCH) for _ in range(20)]


def zipf_batches(seed: int, keys: int = 10_000, exponent: float = 0.99) -> list[list[str]]:
    """Batches of Zipf-distributed keys: the i-th most frequent has the weight 1 / i^exponent."""
    names = [f"k{index}" for index in range(keys)]
    weights = list(itertools.accumulate(1 / rank**exponent for rank in range(1, keys + 1)))
    draw = random.Random(seed)
    return [draw.choices(names, cum_weights=weights, k=BATCH) for _ in range(20)]
