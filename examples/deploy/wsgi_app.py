"""Likes and page views in Flask, served by gunicorn with gunicorn.conf.py beside it."""

from __future__ import annotations

import os

import hotcount
from flask import Flask, Response, jsonify, request
from flask.typing import ResponseReturnValue
from hotcount.integrations.prometheus import Collector
from prometheus_client import CollectorRegistry

DATABASE_URL = os.environ["DATABASE_URL"]
REDIS_URL = os.environ["REDIS_URL"]

# With preload_app the master makes these objects. Each worker opens connections of its own.
database = hotcount.connect_database(DATABASE_URL)
store = hotcount.connect_store(REDIS_URL)
votes = hotcount.Votes(database, missing_items="create")
views = hotcount.WriteBehindCounter(database, store)
registry = CollectorRegistry()
registry.register(Collector(votes, views))

app = Flask(__name__)
AWAY = (
    hotcount.UnavailableError,
    hotcount.DeadlineError,
    hotcount.OutcomeUnknownError,
    hotcount.CapacityError,
)


def away(error: Exception) -> ResponseReturnValue:
    # The error's text names servers, so it goes to the log and not to the client.
    app.logger.warning("%s: %s", request.path, error)
    return jsonify(detail="try again later"), 503, {"Retry-After": "1"}


for each in AWAY:
    app.register_error_handler(each, away)


@app.get("/readyz")
def readyz() -> Response:
    ready = database.ready(timeout=2) and store.ready(timeout=2)
    return Response(status=200 if ready else 503)


@app.post("/likes/<int:item>/<int:user>")
def like(item: int, user: int) -> dict[str, int]:
    return {"value": votes.cast(item, user).value}


@app.post("/views/<page>")
def view(page: str) -> dict[str, int]:
    # The view is counted in this process and sent to Redis within flush_interval.
    views.add(page, ack="local")
    return {"pid": os.getpid()}
