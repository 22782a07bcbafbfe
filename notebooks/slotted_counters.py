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
# # Slotted counters: what was said, and what happens
#
# An UPDATE locks its row until it commits, so updates of one count go one after another. A text
# spreads the count over 100 rows (slots), draws one of them for each update, reads the sum, and
# says that "the database can handle up to 100 counter updates at the same time".
#
# Everything is durable when it is acknowledged. SQLite is always there; for other databases give
# the URLs of empty ones: `HOTCOUNT_NOTEBOOK_DATABASES="postgresql://... mariadb://..."`. It runs as
# a script as well, which prints the table: `python notebooks/slotted_counters.py`.

# %%
import itertools
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from functools import partial

import hotcount
import plotly.graph_objects as go
from workbench import (
    ROUNDS,
    SECONDS,
    Claims,
    databases,
    in_rounds,
    layout,
    median,
    ratio,
    timed,
)

folder = tempfile.TemporaryDirectory()
claims = Claims()
DATABASES = databases(folder.name)
SQLITE = DATABASES["SQLite"]
numbers = itertools.count()
print(f"hotcount {hotcount.__version__}, {', '.join(DATABASES)}")

# %% [markdown]
# ## "Up to 100 updates at the same time"
#
# How many slots a number of writers holds that each draw one of 100.

# %%
WRITERS = [2, 4, 12, 25, 50, 100]


def distinct(writers):
    drawn = random.Random(writers)
    return statistics.mean(len({drawn.randrange(100) for _ in range(writers)}) for _ in range(500))


slots_held = {writers: distinct(writers) for writers in WRITERS}
figure = go.Figure(
    [
        go.Scatter(name="drawn", x=WRITERS, y=list(slots_held.values()), mode="lines+markers"),
        go.Scatter(name="one each", x=WRITERS, y=WRITERS, mode="lines", line_dash="dot"),
    ]
)
layout(figure, "Different slots that writers hold, of 100", "slots", xaxis_title="writers")

# %% [markdown]
# The text's example, on SQLite: three updates of `/home`, in the slots 0, 36 and 0.

# %%
example = hotcount.SlottedCounter(SQLITE, "nb_example", key_column="url")
example.create_table()
for slot in (0, 36, 0):
    example.add("/home", slot=slot)
with sqlite3.connect(SQLITE.removeprefix("sqlite:///"), timeout=10) as database:
    rows = database.execute("SELECT slot, count FROM nb_example ORDER BY slot").fetchall()
total = example.get("/home")
example.close()
print(rows, total)

# %%
assert (rows, total) == ([(0, 2), (36, 1)], 3)
claims.add(
    "Updates in the slots 0, 36, 0 make two rows, whose sum is the count",
    f"rows {rows}, sum {total}",
    "true",
)

# %% [markdown]
# Adds a second of processes with one thread each, for one row, for 100 that are drawn, and for 100
# of which each process keeps one.

# %%
PROGRAM = """
import sys, time, hotcount
url, table, slots, choice, seconds = sys.argv[1:]
counter = hotcount.SlottedCounter(url, table, slots=int(slots), slot_choice=choice)
counter.add("/home")
print("ready", flush=True)
sys.stdin.readline()
ends, adds = time.perf_counter() + float(seconds), 0
while time.perf_counter() < ends:
    counter.add("/home")
    adds += 1
print(adds)
"""
PROCESSES = 8 if SECONDS >= 0.5 else 2
KINDS = {"1 slot": (1, "sticky"), "100, drawn": (100, "random"), "100, sticky": (100, "sticky")}


def slotted_rate(url, slots, choice):
    """Adds a second of all processes; the sum over the slots must be what they added."""
    table = f"nb_slot{next(numbers)}"
    counter = hotcount.SlottedCounter(url, table, slots=slots, slot_choice=choice)
    counter.create_table()
    words = [sys.executable, "-c", PROGRAM, url, table, str(slots), choice, str(SECONDS)]
    writers = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    for writer in writers:
        writer.stdout.readline()
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    adds = sum(int(writer.communicate()[0]) for writer in writers)
    assert counter.get("/home") == adds + PROCESSES
    counter.close()
    return adds / SECONDS


slotted = {
    database: in_rounds({kind: partial(slotted_rate, url, *of) for kind, of in KINDS.items()})
    for database, url in DATABASES.items()
}
figure = go.Figure(
    [
        go.Bar(
            name=kind,
            x=list(slotted),
            y=[median(of[kind]) for of in slotted.values()],
            texttemplate="%{y:,.0f}",
        )
        for kind in KINDS
    ]
)
layout(figure, f"Adds per second to one count, {PROCESSES} processes", "adds/s")


# %%
def read_time(slots):
    """Microseconds to read a count that has used so many slots."""
    counter = hotcount.SlottedCounter(SQLITE, f"nb_slot{next(numbers)}")
    counter.create_table()
    counter.add("/home")
    with sqlite3.connect(SQLITE.removeprefix("sqlite:///"), timeout=10) as database:
        database.executemany(
            f'INSERT INTO {counter.table} ("key", slot, count)'
            f' SELECT "key", ?, 1 FROM {counter.table} WHERE slot = 0',
            [(slot,) for slot in range(1, slots)],
        )
    right = counter.get("/home") == slots
    seconds = timed(lambda: counter.get("/home"))
    counter.close()
    assert right
    return seconds * 1e6


reads = {slots: read_time(slots) for slots in (1, 100)}
gained = [
    database
    for database, of in slotted.items()
    if median(of["100, sticky"]) > 1.2 * median(of["1 slot"]) and database != "SQLite"
]
claims.add(
    'UPDATE locks the row "until it is done", a bottleneck; slots are not',
    f"{PROCESSES} processes, 100 sticky slots beside 1: "
    + "; ".join(f"{d} {ratio(of['100, sticky'], of['1 slot'])}" for d, of in slotted.items()),
    f"true here on {', '.join(gained) or 'none'}; SQLite has one writer and gains nothing",
)
claims.add(
    '"The database can handle up to 100 counter updates at the same time"',
    f"100 writers that draw hold {slots_held[100]:.0f} slots, 12 hold {slots_held[12]:.1f};"
    f" {PROCESSES} processes, drawn beside one each: "
    + "; ".join(f"{d} {ratio(of['100, drawn'], of['100, sticky'])}" for d, of in slotted.items()),
    "false: draws meet, so that 100 at once need a slot each; a few writers seldom meet",
)
claims.add(
    "The sum over the slots is the count beside writers",
    f"right after each of {ROUNDS * len(KINDS) * len(DATABASES)} runs; read in"
    f" {reads[100]:.0f} us from 100 slots, {reads[1]:.0f} us from one (SQLite)",
    "true",
)

# %% [markdown]
# ## The claims

# %%
folder.cleanup()
claims.show()
