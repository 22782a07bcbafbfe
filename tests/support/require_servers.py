"""A pytest plugin for .ci/run: a skipped `server` test is a failure there, and a missing MySQL.

    python -m pytest -p tests.support.require_servers

On a developer's machine a test may skip itself for want of a server. In the
automatic run it may not, or that would stay green when nothing talks to a server
any more.
"""

from collections.abc import Generator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--mysql", default=False):
        return
    from tests.support.mysql_server import mysql_folder  # It imports hotcount, as conftest.py does.

    if mysql_folder() is None:
        raise pytest.UsageError("MySQL is not here, and its tests have to run; scripts/setup mysql")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected_failure = hasattr(report, "wasxfail")
    if report.skipped and not expected_failure and item.get_closest_marker("server"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} needs its server here, and skipped: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    # A module that skips itself as a whole has no items whose marker could be read.
    if report.skipped and isinstance(collector, pytest.Module):
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} skipped as a whole"
    return report
