"""A pytest plugin that ends a process which hangs where a signal does not reach Python: in C++ code
of the main thread, or after the last test. xdist then names the test and goes on in a new process.

pytest's own faulthandler_timeout has one limit for all tests; this one follows the mark `timeout`.
"""

import faulthandler
import os
import signal
from collections.abc import Generator

import pytest

_stderr = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "hang_grace", "seconds between a test's timeout and the end of its process", "int", 30
    )
    parser.addini("finish_timeout", "seconds that a process has after its last test", "int", 120)


def pytest_configure(config: pytest.Config) -> None:
    # Not yet the file into which pytest captures what a test prints.
    config.stash[_stderr] = os.dup(2)


def end_in(seconds: float, config: pytest.Config) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[_stderr])


def timeout_of(item: pytest.Item) -> float:
    """As pytest-timeout has it: the mark, else the option, else the setting; 0 is none."""
    mark = item.get_closest_marker("timeout")
    if mark is not None:
        return float(mark.args[0])
    option = item.config.getoption("timeout", default=None)
    return float(item.config.getini("timeout") if option is None else option)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    timeout = timeout_of(item)
    if timeout > 0:
        end_in(timeout + item.config.getini("hang_grace"), item.config)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_enter_pdb() -> None:
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    seconds = session.config.getini("finish_timeout")
    end_in(seconds, session.config)
    # Python's own thread stops before the destructors of C++ run.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(2 * seconds)
