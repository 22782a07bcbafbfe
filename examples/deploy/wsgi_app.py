"""Likes and page views in Flask, served by gunicorn with gunicorn.conf.py beside it."""

from __future__ import annotations

import os

import hotcount
from flask import Flask
from hotcount.integrations.prometheus import Collector
from prometheus_client import CollectorRegistry

DATABASE_URL = os.environ["DATABASE_URL"]
REDIS_URL = os.environ["REDIS_URL"]

# Made in the master if the application is preloaded. Each worker makes connections of its own.
votes = hotcount.Votes(DATABASE_URL, missing_items="create")
views = hotcount.WriteBehindCounter(DATABASE_URL, REDIS_URL)
registry = CollectorRegistry()
registry.register(Collector(votes, views))

app = Flask(__name__)


@app.post("/likes/<int:item>/<int:user>")
def like(item: int, user: int) -> dict[str, int]:
    return {"value": votes.cast(item, user).value}


@app.post("/views/<page>")
def view(page: str) -> dict[str, int]:
    # Counted in this process, and sent to Redis within flush_interval.
    views.add(page, ack="local")
    return {"pid": os.getpid()}
