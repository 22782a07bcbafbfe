"""The situations in which the Lua scripts are refused: keys, arguments and data of each."""

from tests.faults.concurrency_situations import CONCURRENCY, RESERVATIONS
from tests.faults.retry_situations import RETRIES
from tests.faults.situation import FAR, LARGE, SOON, Situation, cached, hash_of, log_of, set_of

# A stream of waiting votes, of which the consumers "me" and "dead" have one each.
VOTE = ["i", "1", "u", "7", "v", "1"]
STREAM = [
    ["XGROUP", "CREATE", "s", "workers", "0", "MKSTREAM"],
    ["XGROUP", "CREATECONSUMER", "s", "workers", "me"],
]
TAKE = ["workers", "me", "10", "0", "0", "600000"]
TAKEN = [*STREAM, ["XADD", "s", "5-1", *VOTE]]
BUILT = ["z", "c", "b", "h", "m"]
REMOVED = ["z", "c", "m", "b", "h"]
BUILD = set_of("b", "a") + hash_of("h", "", "t 1 1", "x", "4~", "a", "!")
EMPTY_BUILD = hash_of("h", "", "t 0 1")
TOLD = hash_of("c", "", "0 t")
OPS = ["k", "o0", "o1"]
FULL = [w for i in range(4096) for w in (f"i{i}", "1")]
GCRA = ["", "1", "0", "5", "600000000", "1"]
# From the epoch to 2065, so that no window ends, and takes its key along, while a test runs.
WINDOW = ["", "1", "0", "5", "3000000000000000", "0"]
SLIDING = ["", "1", "0", "5", "60000000", "1"]
# Of two rates.
LOG = ["1000000000000", "1", "0", "5", "60000000", "0", "9", "600000000", "0"]

# A hit at one rate, and one at two.
JOINT_HITS = ["", "gcra", "0", "1", "1", *GCRA[3:]]
JOINT_HITS += ["fixed_window", "0", "1", "2", *WINDOW[3:], *WINDOW[3:]]


SITUATIONS = [
    # -- counters
    Situation("add_with_ttl/fresh", ["k"], [SOON, "2"]),
    Situation("add_with_ttl/there", ["k"], [SOON, "2"], [["SET", "k", "3", "PX", SOON]]),
    Situation("add_with_ttl/large", ["k"], [SOON, "2"], [["SET", "k", LARGE, "PX", SOON]]),
    Situation("add_with_ttl/immortal", ["k"], [SOON, "2"], [["SET", "k", "3"]]),
    Situation("time/any", ["k"], []),
    Situation("add_in_period/fresh", ["k"], ["0", "0", FAR, FAR, "60", "2"]),
    Situation("add_in_period/present", ["k"], ["1", "0", FAR, FAR, "60", "2"]),
    Situation(
        "add_in_period/there",
        ["k"],
        ["0", "0", FAR, FAR, "60", "2"],
        [["SET", "k", "3", "PXAT", FAR + "000"]],
    ),
    Situation(
        "add_in_period/large",
        ["k"],
        ["0", "0", FAR, FAR, "60", "2"],
        [["SET", "k", LARGE, "PXAT", FAR + "000"]],
    ),
    Situation(
        "add_in_period/immortal", ["k"], ["0", "0", FAR, FAR, "60", "2"], [["SET", "k", "3"]]
    ),
    *(
        Situation(f"add_once/{name} {made and 'timed'} {life and 'ttl'}", OPS, arguments, before)
        for made in ("", "now")
        for life in ("", SOON)
        for arguments in [["60000", life, "2", "id", made]]
        for name, before in {
            "fresh": [],
            "there": [["SET", "k", "3", "PX", SOON]],
            "large": [["SET", "k", LARGE, "PX", SOON]],
            "immortal": [["SET", "k", "3"]],
            "younger": hash_of("o0", "x", "1", ttl="50000"),
            "second": hash_of("o0", "x", "1", ttl="50000") + hash_of("o1", "x", "1"),
            "full": hash_of("o0", *FULL),
            "full and others": hash_of("o0", *FULL) + hash_of("o0.87ea", "x", "1"),
        }.items()
    ),
    Situation("add_once/large amount", OPS, ["60000", "", LARGE, "id", ""]),
    *(
        Situation(f"try_add/{name} {life and 'ttl'}", ["k"], [life, *amounts], before)
        for life in ("", SOON)
        for name, amounts, before in [
            ("fresh", ["2", "0", "9"], []),
            ("there", ["2", "0", "9"], [["SET", "k", "3", "PX", SOON]]),
            ("immortal", ["2", "0", "9"], [["SET", "k", "3"]]),
            ("large", ["2", "", str(2**62)], [["SET", "k", LARGE, "PX", SOON]]),
            ("large and too much", ["2", "", LARGE], [["SET", "k", LARGE, "PX", SOON]]),
        ]
    ),
    *RETRIES,
    Situation("reset/absent", ["k"], []),
    Situation("reset/there", ["k"], [], [["SET", "k", "3", "PX", SOON]]),
    # -- cells of counts that are written behind
    *(
        Situation(f"views_publish/{name}", ["c", "k"], ["photo:42", "w", *sums], before)
        for name, sums, before in [
            ("fresh", ["2", "0"], []),
            (
                "another writer's",
                ["2", "0"],
                [["HSET", "c", "v", "1 0"], ["SADD", "k", "photo:42"]],
            ),
            ("there", ["2", "0"], [["HSET", "c", "w", "1 0"], ["SADD", "k", "photo:42"]]),
            ("large", [LARGE, "0"], [["HSET", "c", "w", f"{2**59} 5"], ["SADD", "k", "photo:42"]]),
            ("late", ["1", "0"], [["HSET", "c", "w", "2 0"], ["SADD", "k", "photo:42"]]),
        ]
    ),
    *(
        Situation(f"views_retire/{name}", ["c", "k"], ["photo:42", writer, value], before)
        for name, writer, value, before in [
            ("the last", "w", "1 0", [["HSET", "c", "w", "1 0"], ["SADD", "k", "photo:42"]]),
            (
                "one of two",
                "w",
                "1 0",
                [["HSET", "c", "w", "1 0", "v", "2 0"], ["SADD", "k", "photo:42"]],
            ),
            ("grown", "w", "1 0", [["HSET", "c", "w", "2 0"], ["SADD", "k", "photo:42"]]),
            ("gone", "", "", [["SADD", "k", "photo:42"]]),
        ]
    ),
    # -- limiters
    Situation("limiter_gcra/fresh", ["k"], [*GCRA, "1"]),
    Situation("limiter_gcra/there", ["k"], [*GCRA, "1"], [["SET", "k", "1 1", "PX", SOON]]),
    Situation("limiter_gcra/denied", ["k"], [*GCRA, "6"], [["SET", "k", "1 9"]]),
    Situation("limiter_hit_once/fresh", ["k", "o"], [SOON, "", *GCRA, "1"]),
    Situation("limiter_hit_once/dated", ["k", "o"], [SOON, "now", *GCRA, "1"]),
    Situation("limiter_hit_once/old", ["k", "o"], [SOON, "7", *GCRA, "1"]),
    Situation("limiter_hit_once/denied", ["k", "o"], [SOON, "", *GCRA, "6"]),
    Situation(
        "limiter_hit_once/there",
        ["k", "o"],
        [SOON, "", *GCRA, "1"],
        [["SET", "k", "1 1", "PX", SOON]],
    ),
    Situation(
        "limiter_hit_once/denied there", ["k", "o"], [SOON, "", *GCRA, "6"], [["SET", "k", "1 9"]]
    ),
    Situation(
        "limiter_hit_once/known",
        ["k", "o"],
        [SOON, "", *GCRA, "1"],
        [["SET", "o", "once 1 4 0 1", "PX", SOON]],
    ),
    *CONCURRENCY,
    *RESERVATIONS,
    Situation("limiter_fixed_window/fresh", ["k"], [*WINDOW, "1"]),
    Situation(
        "limiter_fixed_window/there", ["k"], [*WINDOW, "1"], [["SET", "k", "0 1", "PX", SOON]]
    ),
    Situation("limiter_fixed_window/denied", ["k"], [*WINDOW, "6"], [["SET", "k", f"{2**50} 5"]]),
    Situation("limiter_fixed_window/several", ["k"], [*WINDOW, *WINDOW[3:], "1"]),
    Situation(
        "limiter_fixed_window/several there",
        ["k"],
        [*WINDOW, *WINDOW[3:], "1"],
        [["SET", "k", "0 1;0 1", "PX", SOON]],
    ),
    Situation("limiter_sliding_window/fresh", ["k"], [*SLIDING, "1"]),
    Situation(
        "limiter_sliding_window/there", ["k"], [*SLIDING, "1"], [["SET", "k", "0 1 1", "PX", SOON]]
    ),
    Situation("limiter_sliding_window/denied", ["k"], [*SLIDING, "6"], [["SET", "k", "1 5 5"]]),
    Situation("limiter_sliding_log/fresh", ["k"], ["", *LOG[1:], "1"]),
    *(
        Situation(f"limiter_sliding_log/{name}", ["k"], [*LOG, cost], before)
        for name, cost, before in [
            ("there", "1", log_of("k", "999999999999 1 1")),
            ("of the same moment", "1", log_of("k", "1000000000000 1 1")),
            ("partly gone", "1", log_of("k", "1 1 1", "999999999999 2 1")),
            ("denied", "6", log_of("k", "999999999999 1 1", ttl=None)),
        ]
    ),
    Situation(
        "limiter_gcra/given back",
        ["k"],
        [GCRA[0], "6", *GCRA[2:], "1"],
        # More than is given back: a limiter that is full again keeps its key for a millisecond.
        [["SET", "k", f"{FAR}000000 1200000000", "PX", SOON]],
    ),
    *(
        Situation(f"limiter_gcra/{name}", ["k"], [GCRA[0], take, *GCRA[2:], cost], before)
        for name, take, cost, before in [
            ("blocks", "3", SOON, [["SET", "k", f"{FAR}000000 9", "PX", SOON]]),
            ("blocks a fresh one", "3", SOON, []),
            ("blocked", "1", "1", [["SET", "k", f"!{FAR}000000|1 1"]]),
            ("given back while blocked", "6", "1", [["SET", "k", f"!{FAR}000000|{FAR}000000 9"]]),
            ("block passed", "1", "1", [["SET", "k", "!1|1 1", "PX", SOON]]),
            ("blocked, ahead", "1", "1", [["SET", "k", f"!{FAR}000000 9000000|1 1", "PX", SOON]]),
            ("looked at, ahead", "0", "1", [["SET", "k", f"{FAR}000000 9", "PX", SOON]]),
        ]
    ),
    *(
        Situation(f"limiter_sliding_log/{name}", ["k"], [LOG[0], take, *LOG[2:], cost], before)
        for name, take, cost, before in [
            ("blocks", "3", SOON, log_of("k", "999999999999 1 1")),
            ("blocks again", "3", SOON, log_of("k", "999999999999 1 1", f"!{FAR}000000")),
            ("blocks a fresh one", "3", SOON, []),
            ("blocked", "1", "1", log_of("k", f"!{FAR}000000", ttl=None)),
            ("block passed", "1", "1", log_of("k", "999999999999 1 1", "!1")),
            ("given back", "6", "1", log_of("k", "999999999998 1 1", "999999999999 3 2")),
            ("all given back", "6", "5", log_of("k", "999999999998 1 1", "999999999999 3 2")),
            (
                "given back while blocked",
                "6",
                "1",
                log_of("k", "999999999999 3 3", f"!{FAR}000000"),
            ),
            ("ahead", "1", "1", log_of("k", f"{FAR}000000 1 1")),
            ("ahead, looked at", "0", "1", log_of("k", f"{FAR}000000 1 1")),
            ("ahead, denied", "1", "1", log_of("k", f"{FAR}000000 5 5", f"!{FAR}000000 60000")),
        ]
    ),
    *(
        Situation(f"limiter_hit_all/{name}", ["k", "j"], JOINT_HITS, before)
        for name, before in [
            ("fresh", []),
            ("one there", [["SET", "j", "0 1;0 1", "PX", SOON]]),
            ("there", [["SET", "k", "1 1", "PX", SOON], ["SET", "j", "0 1;0 1", "PX", SOON]]),
            ("denied", [["SET", "k", f"{FAR}000000 9"]]),
            ("denied and blocked, ahead", [["SET", "k", f"!{FAR}000000 9|{FAR}000000 9"]]),
            ("blocked", [["SET", "k", f"!{FAR}000000|1 1"]]),
            ("block passed", [["SET", "k", "!1|1 1", "PX", SOON]]),
        ]
    ),
    Situation("limiter_gcra/what fits", ["k"], [*GCRA[:1], "2", *GCRA[2:], "9"]),
    Situation("limiter_sliding_log/what fits", ["k"], [LOG[0], "2", *LOG[2:], "9"]),
    # -- sorted sets: one, its companion and the marker
    *(
        Situation(f"zset_create/{name}", keys, [SOON, "1000", "1", "a", "2", "b"], before)
        for name, keys, before in [
            ("fresh", ["z", "c"], []),
            ("there", ["z", "c"], set_of("z", "old") + hash_of("c", "", "0")),
            ("there, with versions", ["z", "c"], set_of("z", "old") + hash_of("c", "old", "9")),
            ("alone", ["z"], set_of("z", "old")),
        ]
    ),
    *(
        Situation(f"zset_upsert/{name}", BUILT, [gate, "1000", *element], before)
        for name, gate, element, before in [
            ("plain", "0", ["b", "7", "2"], set_of("z", "a")),
            ("expiring", LARGE, ["b", "7", "2"], set_of("z", "a")),
            ("told of a build", "0", ["b", "7", "2"], set_of("z", "a") + TOLD),
            ("after a dead builder", "0", ["b", "7", "4"], set_of("z", "a") + TOLD),
            ("first version", "0", ["b", "7", "5", "4"], set_of("z", "a")),
            (
                "version",
                "0",
                ["a", "7", "5", "4"],
                [
                    *set_of("z", "a"),
                    *hash_of("c", "a", "3", ttl="700000"),
                    ["SET", "m", "", "PX", "700000"],
                ],
            ),
            (
                "version, longer",
                "0",
                ["a", "7", "5", "4"],
                [*set_of("z", "a"), *hash_of("c", "a", "3"), ["SET", "m", "", "PX", SOON]],
            ),
            ("without members", "0", ["a", "7", "2"], hash_of("c", "", FAR + "000")),
            ("without members, version", "0", ["a", "7", "5", "4"], hash_of("c", "", FAR + "000")),
            ("in a build", "0", ["b", "7", "4"], set_of("z", "a") + BUILD),
            ("in a build, first member", "0", ["b", "7", "4"], set_of("z", "a") + EMPTY_BUILD),
            ("in a build, absent", "0", ["b", "7", "4"], BUILD),
            (
                "in a build, version",
                "0",
                ["a", "7", "5", "4"],
                [*set_of("z", "a"), *hash_of("c", "a", "3"), ["SET", "m", ""], *BUILD],
            ),
        ]
    ),
    *(
        Situation(f"zset_remove/{name}", REMOVED, ["a", version, "1000"], before)
        for name, version, before in [
            ("plain", "", set_of("z", "a", "b") + hash_of("c", "", "0")),
            ("last", "", set_of("z", "a") + hash_of("c", "", "0")),
            ("last, long companion", "", set_of("z", "a") + hash_of("c", "", "0", ttl="700000")),
            ("version", "4", set_of("z", "a", "b") + hash_of("c", "a", "3")),
            ("first version", "4", set_of("z", "a", "b")),
            ("last, version", "4", set_of("z", "a") + hash_of("c", "a", "3")),
            ("without members", "4", hash_of("c", "", FAR + "000")),
            ("in a build", "", set_of("z", "a", "b") + BUILD),
            ("in a build, last", "", set_of("z", "a") + TOLD + BUILD),
            ("in a build, absent", "", BUILD),
            ("in a build, version", "4", set_of("z", "a", "b") + hash_of("c", "a", "3") + BUILD),
        ]
    ),
    # -- builds of sorted sets: the build and its hash beside them
    *(
        Situation(f"zset_begin_build/{name}", ["z", "c", "b", "h"], ["t", SOON, "1000"], before)
        for name, before in [
            ("fresh", []),
            ("there", set_of("z", "a") + hash_of("c", "", "0")),
            ("long companion", hash_of("c", "", "0", ttl="7000000")),
            ("what a dead builder left", set_of("b", "a")),
        ]
    ),
    *(
        Situation(
            f"zset_add_to_build/{name}",
            ["z", "c", "b", "h"],
            ["t", chunk, SOON, "1000", *members],
            set_of("z", "a") + hash_of("c", "", "0 t", "x", "9") + before,
        )
        for name, chunk, members, before in [
            ("first members", "2", ["x", "1", "", "y", "2", "7"], EMPTY_BUILD),
            ("more", "2", ["a", "1", "", "x", "2", "7"], BUILD),
            ("renewal", "0", [], BUILD),
        ]
    ),
    Situation(
        "zset_add_to_build/lost",
        ["z", "c", "b", "h"],
        ["t", "2", SOON, "1000", "x", "1", ""],
        TOLD + hash_of("h", "", "t 5 1"),
    ),
    Situation(
        "zset_carry_versions/there",
        ["c", "b", "h"],
        ["t", SOON, "0"],
        hash_of("c", "", "0 t", "x", "9", "a", "3") + BUILD,
    ),
    Situation(
        "zset_carry_versions/lost", ["c", "b", "h"], ["t", SOON, "0"], hash_of("h", "", "t 5 1")
    ),
    *(
        Situation(
            f"zset_publish_build/{name}",
            ["z", "c", "m", "b", "h"],
            ["t", chunks, SOON, "1000"],
            set_of("z", "old") + before,
        )
        for name, chunks, before in [
            ("there", "1", TOLD + BUILD),
            ("without members", "1", TOLD + EMPTY_BUILD),
            ("a chunk is lost", "2", TOLD + BUILD),
            ("a companion made anew", "1", hash_of("c", "", "0") + BUILD),
        ]
    ),
    Situation("zset_abandon_build/there", ["b", "h"], ["t"], BUILD),
    Situation("zset_sweep/immortal", ["z"], [], [["ZADD", "z", "1", "a"]]),
    # -- votes
    *(
        Situation(
            f"votes_increment/{name}", ["h", "id"], [SOON, "u", difference, "1", epoch], before
        )
        for name, difference, epoch, before in [
            ("fresh", "2", "2", []),
            ("there", "2", "2", [cached("h")]),
            ("of an older epoch", "2", "3", [cached("h")]),
            ("large", "2", "2", [cached("h", value=LARGE)]),
            ("overflow", "2", "2", [cached("h", value=str(2**63 - 2))]),
            ("no number", "2", "2", [cached("h", value="seven")]),
            ("no number of votes", "2", "2", [cached("h", version="x")]),
        ]
    ),
    *(
        Situation(f"votes_land/{name}", ["h"], ["t", "4", epoch, "9"], [cached("h", **fields)])
        for name, epoch, fields in [
            ("unfilled", "2", {"gen": "0"}),
            ("unfilled, overflow", "2", {"gen": "0", "value": str(2**63 - 2)}),
            ("unfilled, of an older epoch", "3", {"gen": "0"}),
            ("filled", "2", {"gen": "1"}),
        ]
    ),
    Situation("votes_mark/there", ["h"], ["1", "3"], [cached("h")]),
    Situation("votes_remove/there", ["h"], ["1", "3"], [cached("h", saved_version="3")]),
    Situation("votes_drop/there", ["h"], ["3"], [cached("h")]),
    Situation("votes_read/there", ["h"], [], [cached("h")]),
    Situation("votes_copy/fresh", ["c"], [SOON, "2", "1"]),
    Situation(
        "votes_increment/there, its count asked for",
        ["h", "id"],
        [SOON, "u", "2", "1", "2", "counts"],
        [cached("h")],
    ),
    Situation(
        "votes_copy/older there", ["c"], [SOON, "10", "1"], [["SET", "c", "9 7", "PX", SOON]]
    ),
    Situation("votes_copy/newer there", ["c"], [SOON, "2", "1"], [["SET", "c", "10 7"]]),
    Situation("votes_stream_add/there", ["s"], ["3", "1", "u", "7", "1"], STREAM),
    Situation("votes_stream_add/full", ["s"], ["1", "1", "u", "7", "1"], TAKEN),
    Situation("votes_stream_add/unborn", ["s"], ["3", "1", "u", "7", "1"]),
    *(
        Situation(f"votes_stream_open/{name}", ["s", "c", "l"], [group, "9-3", "1"], before)
        for name, group, before in [
            ("fresh", "workers", []),
            ("closed", "workers", [["SET", "c", "1"]]),
            ("from the least", "workers", [["SET", "l", "9-4"]]),
            ("there", "workers", STREAM),
            ("without its group", "other", STREAM),
        ]
    ),
    Situation("votes_stream_close/empty", ["s", "c"], ["1", "60"], STREAM),
    Situation("votes_stream_close/gone", ["s", "c"], ["1", "60"]),
    Situation("votes_stream_close/with a vote", ["s", "c"], ["1", "60"], TAKEN),
    Situation("votes_stream_state/there", ["s"], [], TAKEN),
    *(
        Situation(f"votes_stream_take/{name}", ["s"], TAKE, [*TAKEN, *taken])
        for name, taken in [
            ("new", []),
            ("own", [["XREADGROUP", "GROUP", "workers", "me", "STREAMS", "s", ">"]]),
            ("another's", [["XREADGROUP", "GROUP", "workers", "dead", "STREAMS", "s", ">"]]),
        ]
    ),
    Situation(
        "votes_stream_take/another's, under way",
        ["s"],
        ["workers", "me", "10", "30000", "0", "600000"],
        [*TAKEN, ["XREADGROUP", "GROUP", "workers", "dead", "STREAMS", "s", ">"]],
    ),
    Situation(
        "votes_stream_take/nothing, idle consumer",
        ["s"],
        [*TAKE[:-1], "-1"],
        [*STREAM, ["XGROUP", "CREATECONSUMER", "s", "workers", "idle"]],
    ),
    Situation(
        "votes_stream_give_back/own",
        ["s"],
        ["workers", "me", "30000"],
        [*TAKEN, ["XREADGROUP", "GROUP", "workers", "me", "STREAMS", "s", ">"]],
    ),
    Situation("votes_stream_advance/there", ["s", "l"], ["60", "0-0"], TAKEN),
    Situation("votes_stream_advance/gone", ["s", "l"], ["60", "0-0"]),
    Situation(
        "votes_stream_trim_refused/one of two",
        ["r"],
        ["7-0"],
        [["XADD", "r", "1-1", *VOTE, "id", "7-0"], ["XADD", "r", "1-2", *VOTE, "id", "7-1"]],
    ),
    Situation("votes_stream_settle/written", ["s", "r"], ["workers", "9", "60", "1", "5-1"], TAKEN),
    Situation(
        "votes_stream_settle/refused",
        ["s", "r"],
        ["workers", "9", "60", "1", "5-1", "5-1", "1", "u", "7", "1", "no such item"],
        [*TAKEN, ["XADD", "r", "1-1", *VOTE, "e", "no such item"]],
    ),
]
# Refused also where every command is allowed.
BAD_DATA = {
    "votes_increment/overflow",
    "votes_increment/no number",
    "votes_increment/no number of votes",
    "votes_land/unfilled, overflow",
}
# For want of memory a server refuses a script's first write only, and theirs gives a key its end.
HEAL_FIRST = {"limiter_hit_once/denied there"}

BY_NAME = {situation.name: situation for situation in SITUATIONS}
