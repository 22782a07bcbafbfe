"""Ctrl-C while a call waits for Redis: the exception comes at once, and no reply is swapped.

The programs below are processes of their own, because signals are theirs alone. They and the test
talk in lines: a program says where it is, and the test stops the server or sends the signal then.
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import hotcount
import pytest

from tests.support.fired import fired
from tests.support.interrupted_program import AT_ONCE, all_wait, running, stopped, waits
from tests.support.servers import RedisServer


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("counter.add('k')", id="add"),
        pytest.param("counter.add_many(['k'] * 3000)", id="add_many"),
        pytest.param("counter.get_many(['k', 'j'])", id="get_many"),
        pytest.param("counter.try_add('k', 1, max=5)", id="script"),
        pytest.param("redis.execute('ECHO', 'x')", id="execute"),
        pytest.param("hotcount.Counter(redis, ttl=60).add_many(['a', 'b', 'c'])", id="one-by-one"),
        pytest.param("redis.execute('NOT.KNOWN')", id="alone"),
    ],
)
def test_ctrl_c_ends_a_call_that_waits_for_a_stopped_server(
    own_redis: RedisServer, call: str
) -> None:
    text = f"""
say("took", interrupted(lambda: {call}))
hear()
assert redis.ping()
for number in range(100):
    assert redis.execute("ECHO", f"{{number}}") == f"{{number}}".encode()
say("connects", redis.stats()["connects"])
"""
    with stopped(own_redis, text) as program:
        program.end_the_wait()
        own_redis.send_signal(signal.SIGCONT)
        program.tell("goes on")
        # The connection that threads share was kept: the late reply was read and dropped. (The one
        # for a command alone was not yet open.)
        assert program.expect("connects") == ["1"]
        program.end()


@pytest.mark.parametrize(
    ("call", "added"), [("counter.add('main')", 1), ("counter.add_many(['main'] * 50)", 50)]
)
@pytest.mark.parametrize("first", ["main", "thread"])
def test_an_interrupted_add_swaps_nobodys_reply(
    own_redis: RedisServer, call: str, added: int, first: str
) -> None:
    # Whoever calls first holds the roles of reader and writer for the other.
    text = f"""
go = threading.Event()
values = {{}}

def work(name):
    go.wait()
    values[name] = [counter.add(name) for _ in range(200)]

names = [f"thread{{number}}" for number in range(4)]
threads = [threading.Thread(target=work, args=(name,)) for name in names]
for thread in threads:
    thread.start()

def let_go():
    hear()
    go.set()

if "{first}" == "thread":
    let_go()
    hear()
else:
    threading.Thread(target=let_go).start()
took = interrupted(lambda: {call})
assert not values
say("took", took)
hear()
for thread in threads:
    thread.join()
assert values == {{name: list(range(1, 201)) for name in names}}, values
say("added", counter.add("main") - 1)
assert redis.stats()["connects"] == 1, redis.stats()
"""
    with stopped(own_redis, text) as program:
        if first == "thread":
            program.tell("threads go")
            all_wait(program.pid, 5)
            program.tell("main goes")
        program.expect("calls")
        waits(program.pid)
        if first == "main":
            program.tell("threads go")
            all_wait(program.pid, 5)
        program.interrupt()
        assert float(program.expect("took")[0]) < AT_ONCE
        own_redis.send_signal(signal.SIGCONT)
        program.tell("goes on")
        applied = int(program.expect("added")[0])
        program.end()
    # Sent once and applied once, although nobody heard of it; behind enough others it may still
    # have been waiting to be sent, and was taken back.
    assert applied == added or (first == "thread" and applied == 0)
    with own_redis.redis() as redis:
        counter = hotcount.Counter(redis)
        assert counter.get("main") == applied + 1
        assert [counter.get(f"thread{number}") for number in range(4)] == [200] * 4


def test_an_interrupt_does_not_make_a_slow_server_a_dead_one(own_redis: RedisServer) -> None:
    # A call that gave up at its deadline has the connection broken by whoever calls 250 ms later:
    # the server had all its time. After Ctrl-C it had none, and calls under way would be lost.
    text = """
values = []
first = threading.Thread(target=lambda: values.append(counter.add("first")))
first.start()
hear()
say("took", interrupted(lambda: counter.add("k")))
time.sleep(0.4)
second = threading.Thread(target=lambda: values.append(counter.add("second", 2)))
second.start()
say("all")
hear()
first.join()
second.join()
assert sorted(values) == [1, 2], values
say("connects", redis.stats()["connects"])
"""
    with stopped(own_redis, text) as program:
        all_wait(program.pid, 2)
        program.tell("the first is under way")
        program.end_the_wait()
        program.expect("all")
        all_wait(program.pid, 3)
        own_redis.send_signal(signal.SIGCONT)
        program.tell("goes on")
        assert program.expect("connects") == ["1"]
        program.end()


def test_a_handler_that_does_not_raise_lets_the_call_go_on(own_redis: RedisServer) -> None:
    text = """
signal.signal(signal.SIGINT, lambda *_: (caught.append(1), say("handled")))
say("calls")
assert counter.add("k") == 2
assert len(caught) == 3, caught
assert counter.add_many(["k", "k"]) == [3, 4]
say("right")
"""
    with stopped(own_redis, text) as program:
        program.expect("calls")
        for _ in range(3):
            waits(program.pid)
            os.kill(program.pid, signal.SIGINT)
            # Run while the call waits, and not after it.
            program.expect("handled")
        own_redis.send_signal(signal.SIGCONT)
        program.expect("right")
        program.end()


def test_a_call_raises_what_the_signal_handler_raised(own_redis: RedisServer) -> None:
    text = """
class Stop(Exception):
    pass

def stop(number, frame):
    raise Stop("by the handler")

signal.signal(signal.SIGTERM, stop)
say("calls")
try:
    counter.add("k")
except Stop as error:
    assert str(error) == "by the handler"
    # Where the call stands, for whoever reads it.
    assert error.__traceback__.tb_frame.f_code.co_name == "<module>"
    assert error.__context__ is None and error.__cause__ is None
    say("stopped")
hear()
# The next call is an ordinary one, with a deadline of its own.
assert counter.add("k") == 3
try:
    counter.add("k", "text")
except TypeError:
    say("right")
"""
    with stopped(own_redis, text) as program:
        program.expect("calls")
        waits(program.pid)
        os.kill(program.pid, signal.SIGTERM)
        program.expect("stopped")
        own_redis.send_signal(signal.SIGCONT)
        program.tell("goes on")
        program.expect("right")
        program.end()


def test_a_signal_to_another_thread_reaches_the_main_one(own_redis: RedisServer) -> None:
    # Where the main thread blocks the signal the kernel gives it to another, and no wait of the
    # main thread is cut short: it looks by itself.
    text = """
stop = threading.Event()
other = threading.Thread(target=stop.wait, daemon=True)
other.start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
say("took", interrupted(lambda: counter.add("k")))
stop.set()
"""
    with stopped(own_redis, text) as program:
        program.end_the_wait()
        own_redis.send_signal(signal.SIGCONT)
        program.end()


def test_ctrl_c_ends_the_wait_for_a_server_that_loads(own_redis: RedisServer) -> None:
    # LOADING and BUSY are asked again, with pauses: those end as well.
    own_redis.redis().execute("CONFIG", "SET", "busy-reply-threshold", 1)
    text = """
counter.add("k")
say("ready")
hear()
say("took", interrupted(lambda: counter.add("k")))
"""
    with running(text, own_redis.url) as program, own_redis.redis(timeout=20) as other:
        program.expect("ready")
        with pytest.raises(hotcount.HotcountError):
            other.execute("EVAL", "while true do end", 0, timeout=0.2)
        program.tell("busy")
        program.end_the_wait()
        with own_redis.redis() as killer:
            killer.execute("SCRIPT", "KILL")
        program.end()


def test_signals_at_random_swap_no_reply(own_redis: RedisServer) -> None:
    # A tick every millisecond cuts system calls short; every other one, while armed, raises.
    text = """
import random

class Tick(Exception):
    pass

draw = random.Random(7)
armed, ticks, answered, interrupted = False, 0, 0, 0

def tick(*_):
    global armed, ticks
    ticks += 1
    if armed and draw.random() < 0.5:
        armed = False
        raise Tick

signal.signal(signal.SIGALRM, tick)
stop = threading.Event()
wrong = []

def keep_on(name):
    expected = 0
    while not stop.is_set():
        expected += 1
        value = counter.add(name)
        if value != expected:
            wrong.append((name, expected, value))

threads = [threading.Thread(target=keep_on, args=(f"thread{n}",)) for n in range(3)]
for thread in threads:
    thread.start()
# Slow enough that many ticks find the caller waiting for its own reply.
script = "for i = 1, 30000 do end return ARGV[1]"
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
number = 0
while answered < 300 or interrupted < 100:
    number += 1
    token = f"token{number}"
    try:
        armed = True
        reply = redis.execute("EVAL", script, 0, token)
        armed = False
        answered += 1
        if reply != token.encode():
            wrong.append((token, reply))
    except Tick:
        interrupted += 1
signal.setitimer(signal.ITIMER_REAL, 0)
stop.set()
for thread in threads:
    thread.join()
assert not wrong, wrong[:5]
assert redis.stats()["connects"] == 1, redis.stats()
say("right", ticks, answered, interrupted)
"""
    with running(text, own_redis.url) as program:
        ticks, answered, interrupted = map(int, program.expect("right"))
        assert ticks > interrupted >= 100
        fired("SIGALRM", ticks)
        assert answered >= 300
        program.end()


def test_ctrl_c_ends_the_wait_for_a_connection(tmp_path: Path) -> None:
    # Accepts, and does not even greet.
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        text = """
say("took", interrupted(lambda: counter.add("k")))
say("again", interrupted(lambda: counter.add_many(["k"] * 10)))
"""
        with running(text, f"redis+unix://{path}") as program:
            for word in ("took", "again"):
                program.end_the_wait(word)
            program.end()
