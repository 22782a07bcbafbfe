"""Programs that a process starts while it uses hotcount get none of its sockets and files."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import hotcount
import hotcount.aio
import pytest

from tests.support.programs import captured
from tests.support.servers import RedisServer, free_port
from tests.support.sqlalchemy_side import BACKENDS, both_sides
from tests.support.together import together

LIST = """
import os
for number in os.listdir("/proc/self/fd"):
    try:
        print(os.readlink(f"/proc/self/fd/{number}"))
    except OSError:
        pass  # The listing's own.
"""


def inherited() -> set[str]:
    """What a program has open that is started now, as by os.system() or os.execv()."""
    done = captured(
        [sys.executable, "-S", "-c", LIST], close_fds=False, stdin=subprocess.DEVNULL, check=True
    )
    return set(done.stdout.split("\n")) - {""}


def ours() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # The listing's own.
            continue
    return found


@pytest.fixture
def before(request: pytest.FixtureRequest) -> set[int]:
    # After the fixtures that start servers.
    for name in request.fixturenames:
        if name != "before":
            request.getfixturevalue(name)
    return set(ours())


def check(before: set[int]) -> None:
    opened = {number: what for number, what in ours().items() if number not in before}
    assert opened, "nothing was opened: the test looks at nothing"
    leaked = {what for number, what in opened.items() if os.get_inheritable(number)}
    assert not leaked
    assert not set(opened.values()) & inherited()


def test_sockets_to_redis_are_not_inherited(before: set[int], redis_server: RedisServer) -> None:
    with redis_server.redis() as redis:
        hotcount.Counter(redis).add("k")
        # What is not known has a connection of its own.
        with pytest.raises(hotcount.ReplyError):
            redis.execute("NOT.KNOWN")
        check(before)


@pytest.mark.server
def test_sockets_to_redis_over_tcp_are_not_inherited(tmp_path: Path) -> None:
    with RedisServer(tmp_path, port=free_port()).started() as server:
        before = set(ours())
        with hotcount.Counter(f"redis://127.0.0.1:{server.port}") as counter:
            counter.add("k")
            check(before)


async def test_descriptors_of_an_event_loop_are_not_inherited(
    before: set[int], redis_server: RedisServer
) -> None:
    async with hotcount.aio.Redis(redis_server.url) as redis:
        await hotcount.aio.Counter(redis).add("k")
        check(before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_files_and_sockets_of_a_database_are_not_inherited(
    request: pytest.FixtureRequest, database_path: Path, backend: str
) -> None:
    with closing(both_sides(request, backend, database_path)) as sides:
        url = sides.url  # The server runs.
    before = set(ours())
    with hotcount.Database(url, timeout=20) as database, hotcount.Votes(database) as votes:
        votes.create_tables()
        votes.add_items([1])
        together(lambda user: (votes.cast(1, user), votes.count(1)), 8)
        check(before)
