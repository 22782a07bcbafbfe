"""A periodic task that runs one round of a sync worker. It replaces `hotcount sync`.

celery --app celery_app worker --concurrency 1 --beat
"""

from __future__ import annotations

import os

import hotcount
from celery import Celery

app = Celery("counts", broker=os.environ["BROKER_URL"])
app.conf.beat_schedule = {
    "save counts": {
        "task": "celery_app.save",
        "schedule": 1.0,
        # A task that no worker took within 1 s is dropped: the next round does its work.
        "options": {"expires": 1.0},
    }
}

votes = hotcount.Votes(os.environ["DATABASE_URL"], os.environ["REDIS_URL"], "cached")
worker = votes.sync_worker()


@app.task(ignore_result=True)  # type: ignore[untyped-decorator]
def save() -> None:
    # A round may overlap another one, of this task or of `hotcount sync`: each step is fenced.
    worker.run_once(timeout=10)
