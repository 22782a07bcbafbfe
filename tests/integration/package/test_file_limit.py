"""A process that has no file descriptor left: said as such, and over when there are some again."""

from __future__ import annotations

import pytest

from tests.support.fired import fired
from tests.support.programs import run_python
from tests.support.servers import RedisServer

# The lowest free number is the limit.
LIMIT = """
import asyncio, os, resource, sys
import hotcount, hotcount.aio

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

def lower():
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))

def raise_again():
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

def check(refused):
    assert "Too many open files" in str(refused), refused
    print("refused")
"""

LOOP = """
async def main():
    redis = hotcount.aio.Redis(sys.argv[1])
    for command in (("INCR", "k"), ("NO.SUCH.COMMAND",)):
        lower()
        try:
            await redis.execute(*command, timeout=5)
        except hotcount.UnavailableError as refused:
            check(refused)
        raise_again()
        try:
            assert await redis.execute(*command, timeout=5) == 1
        except hotcount.ReplyError as answered:
            assert "unknown command" in str(answered), answered
        print("works")
asyncio.run(main())
"""

THREADS = """
redis = hotcount.Redis(sys.argv[1])
for command in (("INCR", "k"), ("NO.SUCH.COMMAND",)):
    lower()
    try:
        redis.execute(*command, timeout=5)
    except hotcount.UnavailableError as refused:
        check(refused)
    raise_again()
    try:
        assert redis.execute(*command, timeout=5) == 1
    except hotcount.ReplyError as answered:
        assert "unknown command" in str(answered), answered
    print("works")
"""


@pytest.mark.parametrize(
    "program", [pytest.param(LOOP, id="loop"), pytest.param(THREADS, id="threads")]
)
def test_without_descriptors_a_call_is_refused_and_with_some_again_it_works(
    own_redis: RedisServer, program: str
) -> None:
    ended = run_python("-c", LIMIT + program, own_redis.url)
    assert ended.stdout.split() == ["refused", "works"] * 2
    fired("no descriptor", 2)
    # The outage that the logger "hotcount" tells, and nothing beside it.
    for line in ended.stderr.splitlines():
        assert "is not available: Too many open files" in line, ended.stderr
