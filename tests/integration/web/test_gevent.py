"""Programs that gevent has patched."""

from __future__ import annotations

from tests.support.commands import output_of

WORKER = """
from gevent import monkey
monkey.patch_all()
import threading, time, hotcount

votes = hotcount.Votes("sqlite:///:memory:", "memory://", "cached", interval=0.01)
votes.create_tables()
votes.add_items([7])
stop = threading.Event()
worker = votes.sync_worker()
thread = threading.Thread(target=worker.run, args=[stop])
thread.start()
while worker.stats()["rounds"] < 2:
    time.sleep(0.01)  # Other greenlets go on meanwhile.
assert votes.cast(7, user=1).counted
stop.set()
thread.join()

failing = hotcount.Votes("sqlite:///:memory:", "memory://", "cached")
try:
    failing.sync_worker().run(7)
except TypeError as error:
    print(error)
"""


def test_a_worker_runs_beside_greenlets_and_is_stopped_by_one() -> None:
    said = output_of(WORKER)
    assert said == "stop must be a threading.Event, or None, not int\n"
