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
# # Three ways to count votes
#
# The same votes, durable when they are acknowledged (WAL, synchronous=FULL), counted in three ways:
#
# - **naive**: a transaction per vote, which updates the item's one row;
# - **slotted**: a transaction per vote, which updates one of the item's cells;
# - **batched**: callers that wait at the same time share a transaction.
#
# `hotcount-load` drives them and audits every run against its own ledger: nothing lost, nothing
# doubled, counts equal to live votes. Every figure below is measured while the notebook runs, on
# the machine it runs on.

# %%
import json
import os
import subprocess
import sys
from pathlib import Path

import plotly.graph_objects as go

# The tests run this notebook on a load that takes seconds.
DURATION = os.environ.get("HOTCOUNT_NOTEBOOK_DURATION", "2s")
ROUNDS = os.environ.get("HOTCOUNT_NOTEBOOK_ROUNDS", "3")
LOAD = Path(sys.executable).with_name("hotcount-load")


def load(*arguments: str) -> dict:
    """Runs hotcount-load and returns its report; a failed audit stops the notebook."""
    done = subprocess.run(
        [str(LOAD), *arguments, "--json", "--progress", "none"],
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 3):  # 3: a figure is inconclusive, the audits passed.
        raise RuntimeError(done.stderr or done.stdout)
    return json.loads(done.stdout)


# %% [markdown]
# ## Throughput, 64 callers in a closed loop
#
# Rounds alternate between the strategies, so that a slow moment of the machine hits all of them.
# Bars are medians, lines reach from the worst to the best round.

# %%
closed = load("compare", "--rounds", ROUNDS, "-d", DURATION, "-w", "64")
strategies = closed["parts"][0]["strategies"]
names = [each["strategy"] for each in strategies]
rates = [each["writes_per_s"] for each in strategies]

figure = go.Figure(
    go.Bar(
        x=names,
        y=[rate["median"] for rate in rates],
        error_y={
            "array": [rate["max"] - rate["median"] for rate in rates],
            "arrayminus": [rate["median"] - rate["min"] for rate in rates],
        },
        text=[f"{rate['median']:,.0f}/s" for rate in rates],
        textposition="inside",
    )
)
figure.update_layout(
    title="Committed votes per second, 64 callers, SQLite",
    yaxis_title="votes/s",
    template="plotly_white",
)
figure

# %% [markdown]
# ## Nothing lost, nothing doubled
#
# A fast strategy that loses votes is no strategy. These are the audits of the runs above.

# %%
audit_columns = ["acknowledged", "rows", "live_votes", "lost", "double", "ghost"]
table = go.Figure(
    go.Table(
        header={"values": ["strategy", *audit_columns, "audit"]},
        cells={
            "values": [
                names,
                *[[each["audit"][column] for each in strategies] for column in audit_columns],
                ["passed" if each["audit"]["passed"] else "FAILED" for each in strategies],
            ]
        },
    )
)
table.update_layout(title="Audit", height=300)
table

# %%
assert all(each["audit"]["passed"] for each in strategies)

# %% [markdown]
# ## One hot item, on every database there is here
#
# Everybody votes for one item: each vote of the first two ways waits for its own flush, and on
# PostgreSQL and MariaDB also for the row's lock. Servers are private ones with full durability,
# started for the run; what is not installed is left out, and said so.

# %%
DATABASES = {"SQLite": [], "PostgreSQL": ["postgres"], "MariaDB": ["mariadb"]}
STRATEGIES = ["naive", "slotted", "batched"]
one_item = ["compare", "-s", ",".join(STRATEGIES), "--items", "1", "-w", "64"]

hot = {}
for database, managed in DATABASES.items():
    server = ["--managed", *managed] if managed else []
    try:
        report = load(*one_item, "--rounds", ROUNDS, "-d", DURATION, *server)
    except RuntimeError as missing:
        if "is not installed" not in str(missing):
            raise
        print(f"left out: {missing}")
    else:
        hot[database] = {each["strategy"]: each for each in report["parts"][0]["strategies"]}

figure = go.Figure(
    [
        go.Bar(
            name=strategy,
            x=list(hot),
            y=[each[strategy]["writes_per_s"]["median"] for each in hot.values()],
            texttemplate="%{y:,.0f}",
        )
        for strategy in STRATEGIES
    ]
)
figure.update_layout(
    title="Committed votes per second for one item, 64 callers",
    yaxis_title="votes/s",
    yaxis_type="log",
    template="plotly_white",
)
figure

# %%
assert all(each["audit"]["passed"] for strategies in hot.values() for each in strategies.values())

# %% [markdown]
# ## The same from Python
#
# The classes are the same. `cast_many` shares transactions as concurrent callers do.

# %%
import tempfile
import time

import hotcount

with tempfile.TemporaryDirectory() as folder:
    votes = hotcount.Votes(f"sqlite:///{folder}/votes.db")
    votes.create_tables()
    votes.add_items([1])
    users = list(range(20_000))
    started = time.perf_counter()
    casts = votes.cast_many([1] * len(users), users)
    seconds = time.perf_counter() - started
    again = votes.cast_many([1] * len(users), users)
    count = votes.count(1)
    votes.close()

print(f"{len(users) / seconds:,.0f} votes/s from one thread")
print(f"counted {count.value}; sent again, {sum(again.changed)} changed anything")

# %%
assert count.value == len(users)
assert sum(again.changed) == 0
