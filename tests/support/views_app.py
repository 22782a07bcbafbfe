"""The application of test_prefork_views.py: it counts page views, under gunicorn.

/add?ack=... adds 1 to the key of that name, and returns the pid of the process.
"""

from __future__ import annotations

import os
from typing import Any

import hotcount
from flask import Flask, request

app = Flask(__name__)
views = hotcount.WriteBehindCounter(
    os.environ["HOTCOUNT_TEST_DATABASE"],
    hotcount.Redis(os.environ["HOTCOUNT_TEST_CACHE"], timeout=20),
    flush_interval=float(os.environ["HOTCOUNT_TEST_INTERVAL"]),
)


@app.get("/")
def nothing() -> dict[str, Any]:
    return {}


@app.get("/add")
def add() -> dict[str, Any]:
    ack: Any = request.args["ack"]
    views.add(ack, ack=ack)
    return {"pid": os.getpid()}
