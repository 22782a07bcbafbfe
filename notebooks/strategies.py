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
# # Strategies side by side: how fast, how fresh, how safe
#
# `hotcount-load` sends each strategy the same votes, from three processes, and audits what is in
# the database afterwards and what every caller was told. `hotcount.load.compare` gives a DataFrame;
# `hotcount.report` reads the folder that it keeps, for the charts that `hotcount report` draws.
#
# The votes are in SQLite; for other databases give the URLs of empty ones:
# `HOTCOUNT_NOTEBOOK_DATABASES="postgresql://... mariadb://..."`. A private Redis is started and
# ended. It runs as a script as well, which prints the table: `python notebooks/strategies.py`.

# %%
import tempfile

import hotcount
import pandas
from hotcount import load, report
from workbench import ROUNDS, SECONDS, Claims, databases

folder = tempfile.TemporaryDirectory()
claims = Claims()
DATABASES = databases(folder.name)
STRATEGIES = ["naive", "slotted", "batched", "redis/cached", "redis/write_behind"]
print(f"hotcount {hotcount.__version__}, {', '.join(DATABASES)}")

# %% [markdown]
# ## The load
#
# 12 callers in three processes wait for each answer before they go on: 80 % votes, 5 % withdrawn
# votes, 15 % reads, of 1,000 items of which few are popular. The rounds alternate.
#
# Twelve callers are few for `batched`: a process has one batch under way, and a caller waits for
# the batch before its own. PostgreSQL flushes the commits of `naive` together, so `batched` can be
# slower there with 12 callers, and is faster with 64:
# `load.compare(["naive", "batched"], managed="postgres", workers=64)`.


# %%
def compare(name, url):
    """The rows of one database; the folder keeps the rest for the charts."""
    frame = load.compare(
        STRATEGIES,
        managed="redis",
        db=url,
        processes=3,
        workers=12,
        items=1000,
        rounds=ROUNDS,
        duration=4 * SECONDS,
        out=f"{folder.name}/compared-{name}",
    )
    return frame.drop(columns=["part", "database", "reasons"])


frames = {name: compare(name, url) for name, url in DATABASES.items()}
results = {name: report.read(f"{folder.name}/compared-{name}") for name in DATABASES}

# %% [markdown]
# ## What came out
#
# `ratio` is writes per second against `naive`, the median of the rounds. `stale_p99_ms`: of 100
# reads, 99 had a number that was right so long before they were sent, or later.

# %%
frame = pandas.concat(frames, names=["database"]).droplevel(1)
frame.round(3)

# %% [markdown]
# ## Latency against staleness
#
# To the left reads are fresher, below calls are faster. A larger circle is more transactions of the
# database for each vote, a hollow one a strategy whose audit failed, a diamond one whose
# transactions were not counted.

# %%
for name, result in results.items():
    for chart in result.charts():
        if chart.title == "Latency and staleness":
            chart.figure.update_layout(title=name, width=760, margin_t=40).show()

# %%
for name, result in results.items():
    chart = result.charts()[0]
    chart.figure.update_layout(title=name, width=760, margin_t=40).show()

# %%
for name, result in results.items():
    rows = {row.strategy: row for row in result.parts[0].rows}
    behind, batched = rows["redis/write_behind"], rows["batched"]
    claims.add(
        f"{name}: an acknowledgement by Redis is faster than one by the database",
        f"write_behind {behind.writes_per_s[1]:,.0f} writes/s, batched "
        f"{batched.writes_per_s[1]:,.0f}, naive {rows['naive'].writes_per_s[1]:,.0f}; p99 "
        f"{behind.p99_ms:.3g}, {batched.p99_ms:.3g} and {rows['naive'].p99_ms:.3g} ms",
        "true" if behind.writes_per_s[1] > batched.writes_per_s[1] else "not here",
    )
    claims.add(
        f"{name}: and its reads are older",
        f"p99 staleness {behind.stale_p99_ms or 0:,.0f} ms, of the others "
        f"{max(rows[each].stale_p99_ms or 0 for each in STRATEGIES[:-1]):,.0f} ms",
        "true: a vote that waits in Redis is in no count yet",
    )
    lost = [row.strategy for row in rows.values() if row.audit.startswith("broken")]
    claims.add(
        f"{name}: no strategy lost a vote that it had acknowledged",
        f"the audit of {len(rows)} strategies found {', '.join(lost) or 'nothing'}",
        "not true"
        if lost
        else "true while servers live; what each may lose stands in its contract",
    )

# %%
folder.cleanup()
claims.show()
