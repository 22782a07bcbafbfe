"""The limiters' algorithms for tests: a new one takes part in all that go through these lists."""

import uuid
from typing import Any, get_args

import hotcount
from hotcount.limiter import Algorithm

from tests.support.stores import Store

SAFE: tuple[str, ...] = get_args(Algorithm)
# A Limiter's options, one for each kind of state that the algorithms keep.
OPTIONS: list[dict[str, Any]] = [{"algorithm": name} for name in SAFE] + [
    {"algorithm": "fixed_window", "align": "first"}
]
IDS = ["-".join(options.values()) for options in OPTIONS]
# Those that can charge for denied hits.
CHARGING: tuple[str, ...] = tuple(name for name in SAFE if name != "sliding_log")


def periods(algorithm: str) -> int:
    """For how many periods a hit may count."""
    return 2 if algorithm == "sliding_window" else 1


def made_at(seconds: float) -> str:
    """A UUIDv7 that says it was made then, in unix time."""
    value = int(seconds * 1000) << 80 | 7 << 76 | 2 << 62 | uuid.uuid4().int & (2**62 - 1)
    return str(uuid.UUID(int=value))


def occupy(store: Store, options: dict[str, Any], key: str) -> None:
    """Puts a counter where a limiter's state would be."""
    algorithm = options["algorithm"] + ("_first" if options.get("align") == "first" else "")
    hotcount.Counter(store, f"limit:default:{algorithm}:10/300_days").add(key, -1)
