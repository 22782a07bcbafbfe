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
# # Votes and their counts: what was said, and what happens
#
# A text is put to the test that counts votes: each vote is a row, `item.vote_count` is looked up
# often, and a counter in Redis is to make voting fast, with workers that bring it back to the
# database. Its systems are here beside hotcount's:
#
# | strategy | what a vote waits for |
# |---|---|
# | `naive` | a transaction that inserts the vote and updates the item's row |
# | `slotted` | a transaction that inserts the vote and updates one of the item's slots |
# | `batched` | a transaction that all callers who wait share; hotcount's default |
# | `cached` | the same for the vote; its count is an increment in Redis, saved by workers |
# | `write_behind` | Redis alone; workers bring the votes to the database |
#
# In the first four everything is durable when it is acknowledged (SQLite: WAL, synchronous=FULL). A
# vote of `write_behind` is as safe as Redis is until a worker has written it, and the Redis of this
# notebook keeps nothing on disk. The notebook starts this Redis and ends it. SQLite is always
# there; for other databases give the URLs of empty ones:
# `HOTCOUNT_NOTEBOOK_DATABASES="postgresql://... mariadb://..."`. It runs as a script as well, which
# prints the table: `python notebooks/votes.py`.

# %%
import itertools
import random
import sqlite3
import tempfile
import time
from functools import partial

import hotcount
import plotly.graph_objects as go
from workbench import (
    SECONDS,
    Claims,
    PrivateRedis,
    databases,
    in_rounds,
    layout,
    median,
    per_second,
    ratio,
    timed,
    version,
)

server = PrivateRedis()
store = hotcount.Redis(server.url, timeout=60)
folder = tempfile.TemporaryDirectory()
claims = Claims()

DATABASES = databases(folder.name)
SQLITE = DATABASES["SQLite"]
numbers = itertools.count()
print(f"hotcount {hotcount.__version__}, {version(store)}, {', '.join(DATABASES)}")

# %% [markdown]
# ## Counting rows, and a column that has the count
#
# "`vote_count` can also be obtained by counting the number of rows in `vote`", which "is fairly
# slow". Here with an index on the item, which is the best case for it.

# %%
ROWS = [100, 1_000, 10_000, 100_000] if SECONDS >= 0.5 else [100, 1_000]


def look_ups(rows):
    """Microseconds to count the rows of an item, and to read its column."""
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, vote_count INTEGER)")
        database.execute("CREATE TABLE vote (id INTEGER PRIMARY KEY, item_id INTEGER)")
        database.execute("INSERT INTO item VALUES (13, ?)", (rows,))
        database.executemany("INSERT INTO vote (item_id) VALUES (?)", [(13,)] * rows)
        database.execute("CREATE INDEX vote_item ON vote (item_id)")
        return [
            timed(lambda query=query: database.execute(query).fetchone()) * 1e6
            for query in [
                "SELECT COUNT(*) FROM vote WHERE item_id = 13",
                "SELECT vote_count FROM item WHERE id = 13",
            ]
        ]


looks = {rows: look_ups(rows) for rows in ROWS}
figure = go.Figure(
    [
        go.Scatter(name=name, x=ROWS, y=[looks[rows][column] for rows in ROWS])
        for column, name in enumerate(["COUNT(*)", "vote_count"])
    ]
)
layout(
    figure,
    "To look up one item's count",
    "us",
    xaxis_title="votes of the item",
    xaxis_type="log",
    xaxis_dtick=1,
    yaxis_type="log",
    yaxis_dtick=1,
)

# %%
claims.add(
    'Counting the rows "every time ... is fairly slow"',
    "; ".join(
        f"{rows:,} votes: {count:,.0f} us, the column {column:.1f} us"
        for rows, (count, column) in looks.items()
    ),
    "true: the time grows with the votes, that of the column does not",
)

# %% [markdown]
# ## "Update queries are slower than insert queries"
#
# One caller, SQLite, durable: the vote alone, and the vote with its count, in a transaction each;
# then many in one transaction, so that the commit costs nothing.


# %%
def plain_votes(with_count, votes_each):
    """Votes a second by plain SQL."""
    path = f"{folder.name}/plain{next(numbers)}.db"
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, vote_count INTEGER)")
    database.execute("CREATE TABLE vote (id INTEGER PRIMARY KEY, item_id INTEGER)")
    database.execute("INSERT INTO item VALUES (13, 0)")

    def transaction(_):
        database.execute("BEGIN IMMEDIATE")
        for _ in range(votes_each):
            database.execute("INSERT INTO vote (item_id) VALUES (13)")
            if with_count:
                database.execute("UPDATE item SET vote_count = vote_count + 1 WHERE id = 13")
        database.execute("COMMIT")

    ends, done = time.perf_counter() + SECONDS, 0
    while time.perf_counter() < ends:
        transaction(0)
        done += votes_each
    took = time.perf_counter() - ends + SECONDS
    database.close()
    return done / took


plain = in_rounds(
    {
        "insert": partial(plain_votes, False, 1),
        "insert and update": partial(plain_votes, True, 1),
        "insert, 1,000 a commit": partial(plain_votes, False, 1_000),
        "insert and update, 1,000 a commit": partial(plain_votes, True, 1_000),
    }
)
commitless = median(plain["insert and update, 1,000 a commit"]) / median(
    plain["insert, 1,000 a commit"]
)
claims.add(
    '"Update queries are slower than insert queries", so that the count slows the vote',
    "one caller, SQLite, vote with count beside vote alone:"
    f" {ratio(plain['insert and update'], plain['insert'])}; without the commits"
    f" {ratio(plain['insert and update, 1,000 a commit'], plain['insert, 1,000 a commit'])}",
    "true only where a commit costs nothing"
    if commitless < 0.9
    else "false for one caller; many callers wait for the item's row (next)",
)
print({way: f"{median(rates):,.0f}/s" for way, rates in plain.items()})

# %% [markdown]
# ## Votes for one item
#
# Callers vote for one item, each for a user of its own, and wait for the answer. After each run the
# count must be the number of votes that were acknowledged, and of rows. `write_behind` is measured
# twice: how many votes are acknowledged in a second, and how many are in the database as well, if
# the worker starts when the voters have gone.

# %%
STRATEGIES = ["naive", "slotted", "batched", "cached", "write_behind"]
CALLERS = [1, 16, 64]
written = {}


def votes_of(url, strategy, **options):
    number = next(numbers)
    in_redis = strategy in ("cached", "write_behind")
    cache = hotcount.Redis(server.url, prefix=f"{number}:") if in_redis else None
    tables = {"item_table": f"nb_item{number}", "vote_table": f"nb_vote{number}"}
    votes = hotcount.Votes(url, cache, strategy, **tables, **options)
    votes.create_tables()
    votes.add_items([13])
    return votes


def checked_rate(url, strategy, callers):
    """Votes a second; each of them is there and counted, or this fails."""
    votes = votes_of(url, strategy)
    acknowledged = itertools.count()

    def cast(user):
        answer = votes.cast(13, user)
        if answer.changed or answer.pending:
            next(acknowledged)

    rate = per_second(cast, callers)
    if strategy == "cached":
        votes.sync_worker().run_once()
    if strategy == "write_behind":
        began = time.perf_counter()
        votes.flush(timeout=60)
        took, many = time.perf_counter() - began, SECONDS * rate
        written.setdefault((url, callers), []).append(many / (SECONDS + took))
    cast_in_all, counted = next(acknowledged), int(votes.count(13, consistency="exact"))
    drift = list(votes.reconcile(dry_run=True))
    votes.close()
    assert (counted, drift) == (cast_in_all, []), f"{strategy}: {cast_in_all} cast, {counted}"
    return rate


rates = {
    database: {
        callers: in_rounds({way: partial(checked_rate, url, way, callers) for way in STRATEGIES})
        for callers in CALLERS
    }
    for database, url in DATABASES.items()
}


def picture_of(database):
    figure = go.Figure(
        [
            go.Bar(
                name=way,
                x=[f"{callers} at once" for callers in CALLERS],
                y=[median(rates[database][callers][way]) for callers in CALLERS],
                texttemplate="%{y:,.0f}",
            )
            for way in STRATEGIES
        ]
    )
    return layout(
        figure,
        f"Votes per second for one item, {database}",
        "votes/s",
        yaxis_type="log",
        yaxis_dtick="D2",
    )


for database in DATABASES:
    picture_of(database).show()


# %%
def told(way, beside, callers):
    return "; ".join(
        f"{database} {ratio(of[callers][way], of[callers][beside])}"
        for database, of in rates.items()
    )


def told_written(callers):
    return "; ".join(
        f"{database} {ratio(written[url, callers], rates[database][callers]['batched'])}"
        for database, url in DATABASES.items()
    )


slow = [database for database, of in rates.items() if median(of[64]["naive"]) < 1_000]
claims.add(
    'A transaction with the update "is generally pretty good"; at "1000 votes every seconds, there'
    ' will probably be a performance problem"',
    "; ".join(
        f"{database}: " + ", ".join(f"{c} at once {median(of[c]['naive']):,.0f}/s" for c in CALLERS)
        for database, of in rates.items()
    ),
    f"true for one item on {', '.join(slow)}: 64 callers get less than 1,000/s"
    if slow
    else "false here: 64 callers get more than 1,000/s for one item",
)
claims.add(
    'The counter in Redis: "surely much faster than inserting vote and updating counter in the'
    ' database"',
    f"cached beside naive, 1 caller: {told('cached', 'naive', 1)}; 64 callers:"
    f" {told('cached', 'naive', 64)}; beside batched, which has no Redis, 64 callers:"
    f" {told('cached', 'batched', 64)}",
    "true only where callers wait for each other; sharing a transaction gains that without Redis",
)
claims.add(
    "The vote itself in Redis, and the database later: what the text's counter in Redis promises",
    f"write_behind beside batched, 1 caller: {told('write_behind', 'batched', 1)}; 64 callers:"
    f" {told('write_behind', 'batched', 64)}; until the votes are in the database as well, 64"
    f" callers: {told_written(64)}",
    "true where a caller waits alone; until a worker has written them, Redis alone has the votes",
)

# %% [markdown]
# ## The flow of the cached counter
#
# The text's flow, step by step, with the errors of its scripts mended: a voter inserts its vote,
# looks whether the counter is there, else reads the database, and sets what it read plus one if
# there is still no counter, and increments it otherwise. A worker reads the counter, saves it to
# the database, and deletes it if it still has that value. It is said that the second check "is
# necessary to ensure the correctness", and that the flow "allows multiple workers to synchronize
# counters at the same time without any concurrency problems". Here the steps of three voters and of
# some workers are drawn in random order; a last worker, alone, ends each run. Nobody dies and
# nothing is lost.


# %%
def voter(world, second_check):
    world["rows"] += 1
    yield
    if world["redis"] is not None:
        world["redis"] += 1
        return
    yield
    value = world["count"] + 1
    yield
    if second_check and world["redis"] is not None:
        world["redis"] += 1
    else:
        world["redis"] = value


def worker(world):
    for _ in range(2):
        value = world["redis"]
        yield
        if value is None:
            continue
        world["count"] = value
        yield
        if world["redis"] == value:
            world["redis"] = None
        yield


def is_wrong(drawn, workers, second_check):
    world = {"rows": 0, "count": 0, "redis": None}
    steps = [voter(world, second_check) for _ in range(3)]
    steps += [worker(world) for _ in range(workers)]
    while steps:
        one = drawn.choice(steps)
        if next(one, "done") == "done":
            steps.remove(one)
    for _ in worker(world):
        pass
    return world["count"] != world["rows"]


SCHEDULES = round(20_000 * min(1, SECONDS))


def share_wrong(workers, second_check=True):
    drawn = random.Random(workers)
    return 100 * sum(is_wrong(drawn, workers, second_check) for _ in range(SCHEDULES)) / SCHEDULES


with_check = [share_wrong(workers) for workers in (0, 1, 2)]
without_check = [share_wrong(workers, second_check=False) for workers in (0, 1, 2)]
figure = go.Figure(
    [
        go.Bar(name=name, x=["no worker", "1 worker", "2 workers"], y=y, texttemplate="%{y:.1f} %")
        for name, y in [("with the second check", with_check), ("without", without_check)]
    ]
)
layout(figure, "Orders of three voters that end with a wrong count", "% of orders")

# %%
assert with_check[0] == 0 < min(with_check[1:])
claims.add(
    'The second check "is necessary to ensure the correctness"',
    f"{SCHEDULES:,} orders of 3 voters: wrong without it {without_check[0]:.1f} %, with it"
    f" {with_check[0]:.1f} %; beside one worker {with_check[1]:.1f} %",
    "true, and not enough: a value that was read before a worker's save comes too late",
)
claims.add(
    'Workers "synchronize counters at the same time without any concurrency problems"',
    f"two workers: {with_check[2]:.1f} % of the orders end wrong, one: {with_check[1]:.1f} %",
    "false: a worker that stalls saves an older value over a newer one",
)

# %% [markdown]
# Then the scripts as they are printed, on this Redis, with one counter that is saved and marked.

# %%
LIST = """
local cursor = redis.call("get", "item_synchronization_cursor") or 0
local scanResults = redis.call("scan", cursor, "match", "item_*", "count", 1000)
redis.call("set", "item_synchronization_cursor", scanResults[1])
local keys = scanResults[2]
local result = {}
for i=1,#keys do
    local key = keys[i]
    local id = string.match(key, "item_(%d+)$")
    if id then
        table.insert(result, id)
        table.insert(result, redis.call("get", key))
        table.insert(result, redis.call("get", key .. "saved"))
        table.insert(result, redis.call("get", key .. "expired"))
    end
end
return result
"""
MARK = """
local id = KEYS[1]
local savedValue = tonumber(KEYS[2])
local key = "item_" .. id
local curValue = tonumber(redis.call("get", key))
if savedValue == curValue then
    redis.call("set", key .. "_saved", 1)
end
"""
store.execute("SET", "item_13", 5)
store.execute("EVAL", MARK, 2, "13", "5")
marked = store.execute("GET", "item_13_saved") == b"1"
listed = store.execute("EVAL", LIST, 0)
seen_as_saved = any(metadata is not None for metadata in listed[2:])
store.execute("INCR", "item_13")
still_marked = store.execute("GET", "item_13_saved") == b"1"
store.execute("DEL", "item_13", "item_13_saved", "item_synchronization_cursor")
print(f"marked {marked}; listed {listed}; still marked after another vote: {still_marked}")

# %%
assert (marked, seen_as_saved, still_marked) == (True, False, True)
claims.add(
    'The `_saved` key "limit[s] saving to database as much as possible"',
    f"marked: {marked}, and listed as saved: {seen_as_saved}; after the next vote still marked:"
    f" {still_marked}",
    "false as printed: the list reads another name, and no increment takes the mark away",
)

# %% [markdown]
# ## What a worker saves, and when it deletes
#
# "It is not a good idea to delete counters immediately after saving", and saving should be rare.
# hotcount's `cached`: votes for 100 items in five rounds, with two of a worker's rounds after each;
# once with counts that stay in Redis, and once with a retention of 1 ms.

# %%
ITEMS = 100
EACH = max(2, round(100 * SECONDS))


def worker_rounds(retention):
    votes = votes_of(SQLITE, "cached", retention=retention)
    votes.add_items(range(ITEMS))
    synced, users = votes.sync_worker(), itertools.count()
    for _ in range(5):
        items = [number for number in range(ITEMS) for _ in range(EACH)]
        votes.cast_many(items, [next(users) for _ in items])
        for _ in range(2):
            time.sleep(0.005)
            synced.run_once()
    stats = synced.stats()
    votes.close()
    return {
        "cast": 5 * ITEMS * EACH,
        "saved": stats["saved"],
        "deleted": stats["deleted"],
    }


stays, goes = worker_rounds(600), worker_rounds(0.001)
print(f"retention 600 s: {stays}; 1 ms: {goes}")

# %%
assert stays == {"cast": 500 * EACH, "saved": 500, "deleted": 0}
assert goes["deleted"] >= 400
claims.add(
    '"It is not a good idea to delete counters immediately after saving"; saves should be few',
    f"{stays['cast']:,} votes: {stays['saved']} updates of a count"
    f" ({stays['saved'] / stays['cast']:.3f} a vote) and {stays['deleted']} counts to read again;"
    f" with a retention of 1 ms {goes['saved']} and {goes['deleted']}",
    "true; each deleted count is one more trip to SQL",
)

# %% [markdown]
# ## The claims

# %%
store.close()
server.stop()
folder.cleanup()
claims.show()
