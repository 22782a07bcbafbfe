"""python -m tests.support.rebuild_storm ROLE SETS_URL SOURCE_URL [THREADS INDEX]

What test_rebuild_storm starts. A writer writes to the source, a hash in another server, then
upserts, until its standard input ends; it prints what its upserts came to. A builder rebuilds the
set from the source again and again, until it is killed or its standard input ends; it prints a word
for each rebuild.
"""

import json
import random
import sys
import threading
from collections import Counter as Tally
from collections.abc import Callable
from functools import partial

import hotcount

from tests.support.together import join

SHARED = 4  # Members that all writers write, with versions.
PLAIN = "plain:"
VERSIONED = "versioned:"


def until_closed(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def settled(call: Callable[[], hotcount.Upsert]) -> hotcount.Upsert:
    """An upsert sets a state: after an unknown outcome, or none, it is done again."""
    while True:
        try:
            return call()
        except (
            hotcount.OutcomeUnknownError,
            hotcount.UnavailableError,
            hotcount.DeadlineError,
            hotcount.CapacityError,
        ):
            continue


def write(
    sets: hotcount.LiveSets, source: hotcount.Redis, threads: int, index: int, stop: threading.Event
) -> Tally[str]:
    ends: Tally[str] = Tally()
    lock = threading.Lock()

    def work(thread: int) -> None:
        own: Tally[str] = Tally()
        number = 0
        name = f"{PLAIN}{index}:{thread}"
        while not stop.is_set():
            number += 1
            if number % 10 == 0:
                source.execute("HDEL", "source", name)
                own[str(settled(partial(sets.remove, "k", name)))] += 1
            elif thread % 2:
                member = f"{VERSIONED}{number % SHARED}"
                version = int(source.execute("HINCRBY", "source", member, 1))
                state = settled(partial(sets.upsert, "k", member, version, version=version))
                own[str(state)] += 1
            else:
                source.execute("HSET", "source", name, number)
                own[str(settled(partial(sets.upsert, "k", name, number)))] += 1
        with lock:
            ends.update(own)

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    join(workers)
    return ends


def build(sets: hotcount.LiveSets, source: hotcount.Redis, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            with sets.rebuild("k", ttl=random.choice((0.2, 30, 30, 30)), lease=0.5) as rebuild:
                words = source.execute("HGETALL", "source")
                for member, value in zip(words[::2], words[1::2]):
                    version = int(value) if member.startswith(VERSIONED.encode()) else None
                    rebuild.add(member, int(value), version)
        except (hotcount.LeaseLostError, hotcount.CapacityError):
            print("lost", flush=True)
        except (hotcount.OutcomeUnknownError, hotcount.UnavailableError, hotcount.DeadlineError):
            print("failed", flush=True)
        else:
            print("published", flush=True)


def main(role: str, url: str, source_url: str, threads: str = "0", index: str = "0") -> None:
    stop = threading.Event()
    threading.Thread(target=until_closed, args=(stop,), daemon=True).start()
    with (
        hotcount.LiveSets(hotcount.Redis(url, timeout=20)) as sets,
        hotcount.Redis(source_url, timeout=20) as source,
    ):
        if role == "builder":
            build(sets, source, stop)
        else:
            print(json.dumps(write(sets, source, int(threads), int(index), stop)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
