"""What gunicorn serves in test_prefork.py, and what multiprocessing's children run there.

Made at import, as applications do: under --preload that is in the master, before it forks.
"""

import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import hotcount

from tests.support.together import join

URL = os.environ.get("HOTCOUNT_TEST_URL", "memory://")
FOLDER = Path(os.environ.get("HOTCOUNT_TEST_FOLDER", "."))
TIMEOUT_S = 20

IMPORTED_IN = os.getpid()
store: Any = (
    hotcount.Redis(URL, timeout=TIMEOUT_S) if URL.startswith("redis") else hotcount.Memory()
)
counter = hotcount.Counter(store, prefix="prefork")
# Used before the fork: the connection is open.
counter.add("imports")
CLIENT = store.execute("CLIENT", "ID") if URL.startswith("redis") else None


def application(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    """One add; says its value, which process made it and over which connection."""
    answer = {
        "value": counter.add("hits"),
        "many": list(counter.add_many(["many", "many"], [1, 2])),
        "pid": os.getpid(),
        "imported_in": IMPORTED_IN,
        "thread": threading.get_ident(),
        "client": store.execute("CLIENT", "ID"),
    }
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]


def on_exit(_arbiter: object) -> None:
    """gunicorn's hook: in the master, once all workers are gone."""
    found = {
        "pid": os.getpid(),
        "before": CLIENT,
        "client": store.execute("CLIENT", "ID"),
        "value": counter.add("hits"),
    }
    (FOLDER / "master.json").write_text(json.dumps(found))


# -- children of multiprocessing --------------------------------------------


def add_from_threads(added: hotcount.Counter, key: str, times: int, threads: int) -> list[int]:
    values: list[list[int]] = [[] for _ in range(threads)]

    def work(mine: list[int]) -> None:
        for _ in range(times):
            mine.append(added.add(key))
        mine.extend(added.add_many([key] * times))

    workers = [threading.Thread(target=work, args=(mine,)) for mine in values]
    join(workers)
    return [value for mine in values for value in mine]


def add_over_own_store(url: str, key: str, times: int, threads: int) -> tuple[int, list[int]]:
    with hotcount.Redis(url, timeout=TIMEOUT_S) as own:
        own_counter = hotcount.Counter(own, prefix="prefork")
        values = add_from_threads(own_counter, key, times, threads)
        return int(own.execute("CLIENT", "ID")), values
