# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Counters with lives: what was said, and what happens
#
# Two texts are put to the test. The page of Redis's INCR command says what a counter is. An article
# on "counter design in high concurrency" gives each counter a time to live: SET NX EX, then INCR,
# then a "dual compensation mechanism" for keys that lost their expiry, then a retry queue. Its way
# is in `ways.py` as it is written there, in four forms, beside INCR with EXPIRE. All of them, and a
# script that adds and expires in one step as hotcount's does, go through redis-py.
#
# | name here | what it sends |
# |---|---|
# | `incr` | INCR, then PEXPIRE after the first |
# | `none` | SET NX PX, then INCR |
# | `first` | the same, then PEXPIRE where the result is 1 |
# | `ttl` | the same as `none`, then PTTL, and PEXPIRE where it is -1 |
# | `both` | the same with both: the article's code |
# | `script` | one script: what hotcount does |
#
# The notebook starts a private Redis and ends it. It runs as a script as well, which prints the
# table: `python notebooks/counters.py`.

# %%
import random
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial

import hotcount
import plotly.graph_objects as go
import redis
import ways
from workbench import (
    SECONDS,
    Claims,
    PrivateRedis,
    at_once,
    in_rounds,
    layout,
    median,
    per_second,
    ratio,
    server_cost,
    version,
)

server = PrivateRedis()
store = hotcount.Redis(server.url, timeout=60)
claims = Claims()

plain = server.plain()

WAYS = {
    "incr": ways.incr,
    "none": partial(ways.set_nx_incr, first=False, ttl=False),
    "first": partial(ways.set_nx_incr, ttl=False),
    "ttl": partial(ways.set_nx_incr, first=False),
    "both": ways.set_nx_incr,
    "script": ways.add_by_script,
}
print(f"hotcount {hotcount.__version__}, {version(store)}")


def immortal(pattern):
    """Keys that never expire."""
    return sum(store.execute("PTTL", key) == -1 for key in store.execute("KEYS", pattern))


# %% [markdown]
# ## What the INCR page says of a counter

# %%
counter = hotcount.Counter(store, prefix="")
store.execute("SET", "mykey", "10")
eleven = counter.add("mykey")
encoding = store.execute("OBJECT", "ENCODING", "mykey").decode()
store.execute("SET", "int", "1234567890")
store.execute("SET", "txt", "x234567890")
as_int, as_text = (store.execute("MEMORY", "USAGE", key) for key in ("int", "txt"))
refused = {}
for key, value in {"text": "abc", "full": str(2**63 - 1)}.items():
    store.execute("SET", key, value)
    try:
        counter.add(key)
    except hotcount.HotcountError as error:
        refused[key] = type(error).__name__
counter.add("plain")
without_ttl = store.execute("PTTL", "plain")
print(eleven, encoding, as_int, as_text, refused, without_ttl)

# %%
assert (eleven, encoding, without_ttl) == (11, "int", -1)
assert refused == {"text": "WrongTypeError", "full": "CounterOverflowError"}
claims.add(
    'INCR: SET mykey "10" makes 11; other text and what leaves 64 bits are errors',
    f"{eleven}; {refused['text']}, {refused['full']}, and nothing changed",
    "true",
)
claims.add(
    '"There is no overhead for storing the string representation of the integer"',
    f"encoding {encoding}: a key with 1234567890 takes {as_int} bytes, with x234567890 {as_text}",
    "true",
)
claims.add('INCR alone: "the key will permanently reside in memory"', f"PTTL {without_ttl}", "true")

# %% [markdown]
# The page's example of a counter: a key for each user and day, "to know how many page views this
# user did every day of the year".

# %%
views = hotcount.PeriodCounter(store, "day", prefix="views", keep=400)
today = datetime.now(timezone.utc).replace(hour=12, minute=0)
for days in range(365):
    views.add("user:1", days % 7 + 1, at=today - timedelta(days=days))
year = views.series("user:1", today - timedelta(days=364), today + timedelta(hours=12))
year_keys = store.execute("KEYS", "views:*")
year_bytes = sum(store.execute("MEMORY", "USAGE", key) for key in year_keys)
year_views = sum(count for _, count in year)
print(f"{year_views} views, {len(year_keys)} keys, {year_bytes:,} bytes")

# %%
assert (len(year_keys), year_views) == (365, sum(days % 7 + 1 for days in range(365)))
claims.add(
    '"How many page views this user did every day of the year": a key for user and date',
    f"{year_views:,} views in one round trip; {len(year_keys)} keys, {year_bytes:,} bytes a user",
    "true, at that price",
)

# %% [markdown]
# ## Two callers at once
#
# The article's example of the danger: "When two threads execute SETNX at the same time, the
# initialized thread is not grabbed and directly executes INCR, resulting in the existence of key
# but no TTL." Here 8 callers with a connection each add to keys that nobody has made, all at the
# same time, without any compensation.

# %%
CALLERS = 8
KEYS = 250
connections = server.callers(CALLERS)
clients = [server.plain() for _ in connections]
cold = [f"cold:{key}" for key in range(KEYS)]
at_once([lambda each=each: [WAYS["none"](each, key, 60_000) for key in cold] for each in clients])
counted = sum(int(plain.get(key)) for key in cold)
cold_immortal = immortal("cold:*")
print(f"{counted} of {CALLERS * KEYS} adds counted, {cold_immortal} of {KEYS} keys never expire")

# %%
assert (counted, cold_immortal) == (CALLERS * KEYS, 0)
claims.add(
    'SET NX EX avoids "data overwriting by multiple threads"',
    f"{counted:,} of {CALLERS * KEYS:,} adds counted",
    "true",
)
claims.add(
    '"When two threads execute SETNX at the same time" the key has no TTL',
    f"{CALLERS} callers at once, {KEYS} new keys: {cold_immortal} without a TTL",
    "false: whoever loses finds the winner's key, which has its TTL since it was made",
)

# %% [markdown]
# ## Keys that expire between two commands
#
# What does break it: SET NX finds the key, the key expires, and INCR makes a new one without an
# expiry. Nobody races for that; a key that lives for 2 ms and calls that take a tenth of it are
# enough. 8 callers add to 200 such keys. An observer counts the keys without an expiry meanwhile,
# all of them in one step; at the end the keys that never expire are counted.
#
# Then the same where one of the 8 callers dies before each PEXPIRE. A user who may not PEXPIRE
# stands for it.

# %%
LIFE_MS = 2
POOL = [str(number) for number in range(200)]
LOOK = """
local n = 0
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
    if redis.call('PTTL', key) == -1 then n = n + 1 end
end
return n
"""
store.execute("ACL", "SETUSER", "dying", "on", ">pw", "~*", "&*", "+@all", "-pexpire")


def storm(way, dying):
    """Adds; the most keys without an expiry at one instant; those that never expire."""
    store.execute("FLUSHALL")
    callers = list(clients)
    if dying:
        callers[0] = server.plain(username="dying", password="pw")
    drawn = [random.Random(number) for number in range(CALLERS)]
    most, over = [0], threading.Event()

    def add(number):
        caller = number % CALLERS
        # It died where it says so.
        with suppress(redis.exceptions.NoPermissionError, redis.exceptions.ResponseError):
            WAYS[way](callers[caller], f"life:{drawn[caller].choice(POOL)}", LIFE_MS)

    def observe():
        while not over.wait(0.01):
            most[0] = max(most[0], store.execute("EVAL", LOOK, 0, "life:*"))

    observer = threading.Thread(target=observe)
    observer.start()
    began = time.perf_counter()
    rate = per_second(add, CALLERS)
    adds = rate * (time.perf_counter() - began)
    over.set()
    observer.join()
    time.sleep(LIFE_MS * 5 / 1000)
    left = immortal("life:*")
    if dying:
        callers[0].close()
    return adds, most[0], left


storms = {(way, dying): storm(way, dying) for dying in (False, True) for way in WAYS}
figure = go.Figure(
    [
        go.Bar(
            name=name,
            x=list(WAYS),
            y=[storms[way, dying][column] for way in WAYS],
            texttemplate="%{y}",
        )
        for dies, dying in [("", False), (", one of 8 callers dies", True)]
        for name, column in [(f"at one instant{dies}", 1), (f"for ever{dies}", 2)]
    ]
)
layout(figure, f"Keys without an expiry, of {len(POOL)} that live for 2 ms", "keys")

# %% [markdown]
# The same without luck, step by step: SET NX finds the key, it expires, INCR makes it anew, and the
# caller is no more. Nobody adds to that key again.

# %%
store.execute("SET", "forced", 5, "PX", 20)
found = store.execute("SET", "forced", 0, "NX", "PX", 60_000) is None
while store.execute("EXISTS", "forced"):
    pass
made_anew = store.execute("INCR", "forced")
forced = store.execute("PTTL", "forced")
print(f"SET NX found the key: {found}; INCR {made_anew}; PTTL {forced}")

# %%
assert (found, made_anew, forced) == (True, 1, -1)
assert storms["script", False][1:] == storms["script", True][1:] == (0, 0)


def left_of(way, dying):
    adds, _, left = storms[way, dying]
    return f"{way} {left} of {len(POOL)} after {adds:,.0f} adds"


claims.add(
    "SET NX EX, then INCR (no compensation)",
    left_of("none", False),
    "false: a key that expires in between comes back without a TTL, and stays",
)
claims.add(
    'First compensation: "result == 1", "it will be forced to renew"',
    f"callers live: {left_of('first', False)}; one of {CALLERS} dies: {left_of('first', True)}",
    "true only if the one who got 1 lives on to say PEXPIRE",
)
claims.add(
    '"TTL double compensation" solves "key never expires"',
    f"callers live: {left_of('both', False)}, up to {storms['both', False][1]} at one instant;"
    f" one of {CALLERS} dies: {left_of('both', True)}, up to {storms['both', True][1]}; forced, and"
    f" nobody comes again: PTTL {forced};"
    f" script {storms['script', True][2]}, {storms['script', True][1]} at any instant",
    "true only for keys that somebody adds to again; until then they never expire",
)

# %% [markdown]
# ## What it costs
#
# The article's table says of the compensations: "1 extra query". Round trips and the server's CPU
# time for one add of one caller; adds a second of one caller and of 32 threads. In hotcount adds of
# threads that wait together travel as one command.


# %%
def cost_of(way):
    adds, add = max(100, round(2_000 * SECONDS)), WAYS[way]
    for number in range(10):
        add(plain, f"cost:{number}", 60_000)
    return server_cost(
        store, lambda: [add(plain, f"cost:{n % 10}", 60_000) for n in range(adds)], adds
    )


def rate_of(way, threads):
    add = WAYS[way]
    return per_second(lambda number: add(plain, f"cost:{number % 100}", 60_000), threads)


def hotcount_rate(threads):
    counter = hotcount.Counter(store, "cost", ttl=60)
    return per_second(lambda number: counter.add(str(number % 100)), threads)


costs = {way: cost_of(way) for way in WAYS}
one = in_rounds({way: partial(rate_of, way, 1) for way in WAYS})
many = in_rounds({way: partial(rate_of, way, 32) for way in WAYS})
ours = in_rounds({str(threads): partial(hotcount_rate, threads) for threads in (1, 32)})
figure = go.Figure(
    [
        go.Bar(
            name=name,
            x=[f"{way}<br>{costs[way][0]:.0f} trips, {costs[way][1]:.0f} us" for way in WAYS],
            y=[median(each) for each in figures.values()],
            texttemplate="%{y:,.0f}",
        )
        for name, figures in {"1 caller": one, "32 threads": many}.items()
    ]
)
layout(figure, "Adds per second, with round trips and the server's CPU time per add", "adds/s")

# %%
claims.add(
    '"Redis is extremely fast to handle counter value" (the text on votes)',
    f"adds/s of hotcount.Counter: one caller {median(ours['1']):,.0f}, 32 threads"
    f" {median(ours['32']):,.0f}",
    "true; the notebook on votes has what a database does",
)
trips = {way: round(costs[way][0]) for way in WAYS}
assert (trips["incr"], trips["none"], trips["both"], trips["script"]) == (1, 2, 3, 1)
claims.add(
    'The compensations cost "1 extra query"',
    f"{trips['both']} round trips where {trips['none']} were, script {trips['script']}; server's"
    f" CPU {costs['both'][1]:.0f} us, {costs['none'][1]:.0f}, {costs['script'][1]:.0f};"
    f" adds/s of one caller, both beside none: {ratio(one['both'], one['none'])}, script beside"
    f" both: {ratio(one['script'], one['both'])}, 32 threads {ratio(many['script'], many['both'])}",
    "true; the script needs none of them",
)

# %% [markdown]
# ## "Oversold"
#
# The article's table says that INCR solves "inaccurate counting/oversold". It counts right. But who
# reads the stock and then decrements sells more than there is. 8 callers sell 100 pieces. The one
# step that asks and adds is `try_add`.

# %%
STOCK = 100


def sold(sell):
    stocks = [hotcount.Counter(each, "stock") for each in connections]
    stocks[0].reset("piece")
    stocks[0].add("piece", STOCK)

    def caller(stock):
        pieces = 0
        while sell(stock):
            pieces += 1
        return pieces

    return sum(at_once([partial(caller, stock) for stock in stocks]))


def read_then_decrement(stock):
    if stock.get("piece") <= 0:
        return False
    stock.add("piece", -1)
    return True


sales = {
    "GET, then INCR": [sold(read_then_decrement) for _ in range(20)],
    "try_add(min=0)": [sold(lambda stock: stock.try_add("piece", -1, min=0)) for _ in range(20)],
}
figure = go.Figure([go.Box(name=name, y=each, boxpoints="all") for name, each in sales.items()])
layout(figure, f"Pieces sold of {STOCK} by {CALLERS} callers, 20 sales", "pieces")

# %%
assert set(sales["try_add(min=0)"]) == {STOCK}
claims.add(
    'INCR solves "inaccurate counting/oversold"',
    f"of {STOCK} pieces {min(sales['GET, then INCR'])} to {max(sales['GET, then INCR'])} were sold"
    f" in 20 sales; try_add(min=0): {max(sales['try_add(min=0)'])}",
    "true for the count; oversold by who reads first and adds then",
)

# %% [markdown]
# ## The retry queue: "final consistency"
#
# The article catches every exception, puts the key into a queue in memory, and lets a thread try
# again. Its code, as it is written: if EXPIRE fails, INCR has already counted, and the next try
# counts again. And until the queue has been worked off, the caller is told 1.
#
# hotcount's `RetryQueue` gives each add a number that Redis remembers beside the key, so that it is
# counted once, and returns `Queued`, never a number. Here the server goes away for a moment. Then a
# program that has such a queue in a file dies while the server is away; the next one opens it.


# %%
ADDS = 100
store.execute("ACL", "SETUSER", "cut", "on", ">pw", "~*", "&*", "+@all", "-pexpire")
queue = []
with server.plain(username="cut", password="pw") as cut:
    for number in range(ADDS):
        ways.add_one(cut, f"article:{number}", 60_000, queue)
for key in list(queue):
    ways.set_nx_incr(plain, key, 60_000)
article = sum(int(store.execute("GET", f"article:{number}")) for number in range(ADDS))

impatient = hotcount.Redis(server.url, timeout=0.2)
waiting = hotcount.Counter(impatient, "queued", retry=hotcount.RetryQueue())
waiting.add("k")
server.pause()
told = [waiting.add("k") for _ in range(ADDS - 1)]
server.resume()


def eventually(condition):
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("it did not come to that")
        time.sleep(0.01)


eventually(lambda: waiting.retry_stats().waiting == 0)
once = waiting.get("k")
kinds = {type(each).__name__ for each in told}
print(f"the article's queue: {article} of {ADDS} adds; RetryQueue: {once} of {ADDS}, told {kinds}")

# %%
PROGRAM = """
import os, sys, hotcount
url, path, adds = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = hotcount.Redis(url, timeout=0.2)
counter = hotcount.Counter(store, "died", retry=hotcount.RetryQueue(path))
for _ in range(adds):
    counter.add("k")
os.kill(os.getpid(), 9)
"""
with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/adds.journal"
    server.pause()
    subprocess.run([sys.executable, "-c", PROGRAM, server.url, path, str(ADDS)], check=False)
    server.resume()
    with hotcount.Counter(server.url, "died", retry=hotcount.RetryQueue(path)) as next_program:
        eventually(lambda: next_program.retry_stats().waiting == 0)
        survived = next_program.get("k")
print(f"of {ADDS} adds of a program that was killed, {survived} are counted")

# %%
assert article == 2 * ADDS
assert (once, kinds, survived) == (ADDS, {"Queued"}, ADDS)
claims.add(
    'The retry queue ensures "final consistency"',
    f"{ADDS} adds whose EXPIRE failed: {article} counted; RetryQueue: {once}, and {survived} where"
    " the program was killed while Redis was away",
    "false: INCR has counted when EXPIRE fails, and the queue ends with its process",
)
claims.add(
    "After a failure addOne returns result, which is 1",
    f"{ADDS} of {ADDS} callers were told 1; RetryQueue: {', '.join(sorted(kinds))}",
    "false: 1 is no count, and a limit that compares it lets everybody pass",
)

# %% [markdown]
# ## The claims

# %%
impatient.close()
plain.close()
for each in [*clients, *connections]:
    each.close()
store.close()
server.stop()
claims.show()
