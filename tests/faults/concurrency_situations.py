"""The situations of the scripts of ConcurrencyLimit."""

from __future__ import annotations

from tests.faults.situation import FAR, SOON, Situation


def holders_of(*ids: str) -> list[list[str]]:
    pairs = [word for holder in ids for word in (FAR + "000000", holder)]
    return [["ZADD", "z", *pairs], ["PEXPIRE", "z", SOON]]


CONCURRENCY = [
    *(
        Situation(f"limiter_concurrency_acquire/{name}", ["z"], ["2", "60000000", "me"], before)
        for name, before in {
            "fresh": [],
            "there": holders_of("a"),
            "again": holders_of("a", "me"),
            "ended": [["ZADD", "z", "1", "a", FAR + "000000", "b"], ["PEXPIRE", "z", SOON]],
            "all held": holders_of("a", "b"),
            "all held, immortal": holders_of("a", "b")[:1],
        }.items()
    ),
    *(
        Situation(f"limiter_concurrency_renew/{name}", ["z"], ["60000000", "me"], before)
        for name, before in {
            "there": holders_of("a", "me"),
            "gone": holders_of("a"),
            "ended": [["ZADD", "z", "1", "me", FAR + "000000", "b"], ["PEXPIRE", "z", SOON]],
        }.items()
    ),
    *(
        Situation(f"limiter_concurrency_release/{name}", ["z"], ["me"], before)
        for name, before in {
            "there": holders_of("a", "me"),
            "gone": holders_of("a"),
            "ended": [["ZADD", "z", "1", "me"], ["PEXPIRE", "z", SOON]],
        }.items()
    ),
]
