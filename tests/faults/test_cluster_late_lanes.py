"""Lanes of a cluster's node that read late, as an event loop does that stood still: what the node
answered before it was replaced counts for none of them."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hotcount
import pytest
from redis.crc import key_slot

from tests.support.eventually import eventually, stand_still
from tests.support.redis_cluster import RedisCluster

pytestmark = [pytest.mark.server, pytest.mark.timed]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path).started() as running:
        yield running


def key_of_first_node(cluster: RedisCluster) -> str:
    port, owners = cluster.nodes[0].port, cluster.owners()
    keys = (f"k{number}" for number in range(200))
    return next(key for key in keys if owners[key_slot(f"count:{key}".encode())] == port)


@contextlib.contextmanager
def prepared(program: str, cluster: RedisCluster, key: str) -> Iterator[subprocess.Popen[str]]:
    """A program that has added twice; the replicas have both adds."""
    with subprocess.Popen(
        [sys.executable, "-c", program, cluster.url, key],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout
        assert sorted(json.loads(child.stdout.readline())) == [1, 2]
        cluster.wait_replicas()
        yield child


@contextlib.contextmanager
def adding(program: str, cluster: RedisCluster, key: str) -> Iterator[subprocess.Popen[str]]:
    """A program that has sent adds to the first node, which stands still."""
    with prepared(program, cluster, key) as child:
        assert child.stdin
        assert child.stdout
        cluster.pause(0)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "sent\n"
        yield child


def let_the_replaced_node_answer(cluster: RedisCluster) -> None:
    cluster.wait_for_heir(0)
    cluster.resume(0)
    eventually(lambda: cluster.nodes[0].client.info("replication")["role"] == "slave")


# One in a lane of threads, one in a lane of a loop.
ADD_OVER_TWO_LANES = """
import asyncio, sys, hotcount.aio
async def main(url, key):
    async with hotcount.aio.Redis(url, timeout=20) as store:
        in_thread, in_loop = hotcount.Counter(store), hotcount.aio.Counter(store)
        def add():
            adds = asyncio.to_thread(in_thread.add, key), in_loop.add(key)
            return asyncio.gather(*adds, return_exceptions=True)
        print(await add(), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        adding = add()
        await asyncio.sleep(0.3)
        print("sent", flush=True)
        print(*(type(outcome).__name__ for outcome in await adding))
asyncio.run(main(*sys.argv[1:]))
"""


def test_no_lane_believes_a_replaced_primary_that_another_has_heard_again(
    cluster: RedisCluster,
) -> None:
    """The application stands still meanwhile, and all replies lie in its sockets. The lane that
    reads first ends the silence."""
    key = key_of_first_node(cluster)
    with adding(ADD_OVER_TWO_LANES, cluster, key) as child:
        stand_still(child.pid)
        let_the_replaced_node_answer(cluster)
        child.send_signal(signal.SIGCONT)
        said, _ = child.communicate(timeout=40)
    assert said.split() == ["OutcomeUnknownError"] * 2
    with hotcount.Redis(cluster.url, timeout=10) as store:
        assert hotcount.Counter(store).get(key) == 2


# The loop adds 1000 and stands still in a blocking call, until a thread's adds have been answered.
ADD_IN_A_LOOP_THAT_STANDS_STILL = """
import asyncio, sys, hotcount.aio
def add_three(counter, key):
    sys.stdin.readline()
    added = 0
    while added < 3:
        try:
            counter.add(key)
            added += 1
        except hotcount.OutcomeUnknownError:
            pass
async def main(url, key):
    async with hotcount.aio.Redis(url, timeout=60) as store:
        in_thread, in_loop = hotcount.Counter(store), hotcount.aio.Counter(store)
        print([await asyncio.to_thread(in_thread.add, key), await in_loop.add(key)], flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        adding = asyncio.ensure_future(in_loop.add(key, 1000))
        await asyncio.sleep(0.3)
        print("sent", flush=True)
        add_three(in_thread, key)
        outcome = await asyncio.gather(adding, return_exceptions=True)
        print(type(outcome[0]).__name__)
asyncio.run(main(*sys.argv[1:]))
"""


def test_no_lane_believes_a_primary_that_was_replaced_and_is_back(cluster: RedisCluster) -> None:
    key = key_of_first_node(cluster)
    with adding(ADD_IN_A_LOOP_THAT_STANDS_STILL, cluster, key) as child:
        let_the_replaced_node_answer(cluster)
        cluster.wait_replicas()
        cluster.fail_over(0)
        said, _ = child.communicate("\n", timeout=60)
    assert said.split() == ["OutcomeUnknownError"]
    with hotcount.Redis(cluster.url, timeout=10) as store:
        assert hotcount.Counter(store).get(key) < 1000


# Adds to a node that a planned failover has demoted. Nothing here knows, and the loop stands still.
ADD_TO_A_REPLICA_IN_A_LOOP_THAT_STANDS_STILL = """
import asyncio, sys, threading, time, hotcount.aio
async def main(url, key):
    async with hotcount.aio.Redis(url, timeout=20) as store:
        in_thread, in_loop = hotcount.Counter(store), hotcount.aio.Counter(store)
        print([await asyncio.to_thread(in_thread.add, key), await in_loop.add(key)], flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        adding = [asyncio.ensure_future(in_loop.add(key)) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        thread = threading.Thread(target=in_thread.add, args=[key])
        thread.start()  # The node sends it elsewhere, and the client asks for a map.
        time.sleep(2.5)
        thread.join()
        print(*(await asyncio.gather(*adding)))
asyncio.run(main(*sys.argv[1:]))
"""


def test_a_redirection_that_a_loop_reads_late_is_followed(cluster: RedisCluster) -> None:
    key = key_of_first_node(cluster)
    with prepared(ADD_TO_A_REPLICA_IN_A_LOOP_THAT_STANDS_STILL, cluster, key) as child:
        cluster.fail_over(3)
        said, _ = child.communicate("\n", timeout=40)
    assert sorted(map(int, said.split())) == [4, 5, 6, 7, 8]
