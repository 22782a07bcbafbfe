"""The situations of what limiters hold: places of a ConcurrencyLimit, and reservations."""

from tests.faults.situation import FAR, SOON, Situation


def holders_of(*ids: str) -> list[list[str]]:
    pairs = [word for holder in ids for word in (FAR + "000000", holder)]
    return [["ZADD", "z", *pairs], ["PEXPIRE", "z", SOON]]


ME = "me 60000000"

CONCURRENCY = [
    *(
        Situation(f"limiter_concurrency_acquire/{name}", ["z"], ["2", "60000000", ME], before)
        for name, before in {
            "fresh": [],
            "there": holders_of("a"),
            "again": holders_of("a", ME),
            "ended": [["ZADD", "z", "1", "a", FAR + "000000", "b"], ["PEXPIRE", "z", SOON]],
            "all held": holders_of("a", "b"),
            "all held, immortal": holders_of("a", "b")[:1],
            "more than all": holders_of("a", "b", "c"),
            "all held, and the clock was set back": holders_of("a 60000000", "b 60000000"),
        }.items()
    ),
    *(
        Situation(f"limiter_concurrency_renew/{name}", ["z"], ["60000000", ME], before)
        for name, before in {
            "there": holders_of("a", ME),
            "by another lease": holders_of("a", "me 9000000"),
            "gone": holders_of("a"),
            "ended": [["ZADD", "z", "1", ME, FAR + "000000", "b"], ["PEXPIRE", "z", SOON]],
        }.items()
    ),
    *(
        Situation(f"limiter_concurrency_release/{name}", ["z"], [ME], before)
        for name, before in {
            "there": holders_of("a", ME),
            "by another lease": holders_of("a", "me 9000000"),
            "gone": holders_of("a"),
            "ended": [["ZADD", "z", "1", ME], ["PEXPIRE", "z", SOON]],
        }.items()
    ),
]

GCRA = ["", "4", "0", "5", "600000000", "1"]
HELD = f"!0,2 {FAR}000000 me|"
LIVE = [["SET", "k", f"{HELD}1 1", "PX", SOON]]

RESERVATIONS = [
    *(
        Situation(f"limiter_gcra/reserve, {name}", ["k"], [*GCRA, "2", "60000000", "me"], before)
        for name, before in {
            "fresh": [],
            "there": [["SET", "k", "1 1", "PX", SOON]],
            "again": LIVE,
            "denied": [["SET", "k", f"!0,4 {FAR}000000 you|", "PX", SOON]],
            "denied, immortal": [["SET", "k", f"!0,4 {FAR}000000 you|"]],
        }.items()
    ),
    *(
        Situation(
            f"limiter_gcra/commit, {name}", ["k"], [*GCRA[:1], "5", *GCRA[2:], "3", "me"], before
        )
        for name, before in {"fresh": [], "there": LIVE}.items()
    ),
    *(
        Situation(
            f"limiter_hit_once/commit, {name}",
            ["k", "o"],
            [SOON, "", *GCRA[:1], "5", *GCRA[2:], "3", "me"],
            before,
        )
        for name, before in {"fresh": [], "there": LIVE}.items()
    ),
    Situation("limiter_gcra/hit beside", ["k"], [*GCRA[:1], "1", *GCRA[2:], "1"], LIVE),
    Situation("limiter_hit_all/beside", ["k"], ["", "gcra", "0", "1", "1", *GCRA[3:]], LIVE),
]
