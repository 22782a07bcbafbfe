"""A system that starts no more threads: said as such, and no signal stays blocked."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import output_of
from tests.support.servers import RedisServer

# No thread's stack fits any more. RLIMIT_NPROC does the same, but not to root.
LIMIT = """
import resource, signal, sys, asyncio
import hotcount, hotcount.aio

def lower():
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + 4_000_000, resource.RLIM_INFINITY))

def raise_again():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

def blocked():
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])
"""

LOOP = """
async def main():
    counter = hotcount.aio.Counter(sys.argv[1])
    lower()
    try:
        await counter.add("k", timeout=5)
    except hotcount.CapacityError as refused:
        assert "threads" in str(refused), refused
        print("refused")
    assert not blocked(), blocked()
    raise_again()
    assert await counter.add("k", timeout=5) == 1
    print("works")
asyncio.run(main())
"""

VOTES = """
database = hotcount.Database("sqlite:///votes.db")
votes = hotcount.Votes(database)
votes.create_tables()
votes.add_items([1])
async def main():
    voting = hotcount.aio.Votes(database)
    lower()
    try:
        await voting.cast(1, 1)
    except hotcount.CapacityError as refused:
        assert "threads" in str(refused) and "nothing was applied" in str(refused), refused
        print("refused")
    assert not blocked(), blocked()
    raise_again()
    assert (await voting.cast(1, 1)).changed
    print("works")
asyncio.run(main())
"""


def test_a_loop_whose_connection_needs_a_thread_is_told(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    said = output_of(LIMIT + LOOP, f"{redis_server.url}?db=7", cwd=tmp_path)
    assert said.split() == ["refused", "works"]


def test_a_vote_that_needs_a_thread_is_told_and_not_applied(tmp_path: Path) -> None:
    assert output_of(LIMIT + VOTES, cwd=tmp_path).split() == ["refused", "works"]
