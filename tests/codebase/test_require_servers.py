"""The plugin of .ci/run sees a server test that skips, however it skips, and a missing MySQL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ("-p", "tests.support.require_servers")
# It has tests that meet MySQL.
ON_MARIADB = "tests/integration/sql/test_mariadb_strict.py"


SKIPS_ITSELF = """
@pytest.mark.server
def test_it():
    pytest.skip("no redis-server")
"""
SKIPS_BY_MARK = """
@pytest.mark.skipif(True, reason="no redis-server")
@pytest.mark.server
def test_it():
    pass
"""
SKIPS_IN_A_FIXTURE = """
pytestmark = pytest.mark.server
@pytest.fixture
def redis():
    pytest.skip("no redis-server")
def test_it(redis):
    pass
"""
SKIPS_THE_MODULE = """
pytestmark = pytest.mark.server
pytest.skip("no redis-server", allow_module_level=True)
"""
SKIPS_ANOTHER = """
def test_it():
    pytest.skip("needs no server")
"""
PASSES = """
@pytest.mark.server
def test_it():
    pass
"""
FAILS_AS_EXPECTED = """
@pytest.mark.server
@pytest.mark.xfail
def test_it():
    assert False
"""


@pytest.mark.parametrize(
    ("test", "passes"),
    [
        pytest.param(SKIPS_ITSELF, False, id="skips-itself"),
        pytest.param(SKIPS_BY_MARK, False, id="skips-by-mark"),
        pytest.param(SKIPS_IN_A_FIXTURE, False, id="skips-in-a-fixture"),
        pytest.param(SKIPS_THE_MODULE, False, id="skips-the-module"),
        pytest.param(SKIPS_ANOTHER, True, id="skips-another"),
        pytest.param(PASSES, True, id="passes"),
        pytest.param(FAILS_AS_EXPECTED, True, id="fails-as-expected"),
    ],
)
def test_a_skipped_server_test_fails_the_run(tmp_path: Path, test: str, passes: bool) -> None:
    (tmp_path / "test_it.py").write_text(f"import pytest\n\n{test}\ndef test_other():\n    pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = server\n")
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *PLUGIN),
            *("-c", str(tmp_path / "pytest.ini"), "-p", "no:cacheprovider", str(tmp_path)),
        ],
        cwd=ROOT,
        # What others have installed beside it takes seconds to import.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.returncode == 0) == passes, run.stdout + run.stderr
    assert passes or re.search(r"needs its server here|skipped as a whole", run.stdout)


@pytest.mark.parametrize(
    ("chosen", "arguments", "status", "last_line"),
    [
        pytest.param(ON_MARIADB, [], 0, r"MySQL is not here: its [1-9]\d* .*", id="said-last"),
        pytest.param(ON_MARIADB, PLUGIN, 4, r"ERROR: MySQL is not here.*", id="with-the-plugin"),
        pytest.param(
            *("tests/codebase/test_words.py", [], 0, r".*no tests collected .*"), id="not-missed"
        ),
    ],
)
def test_a_missing_mysql_is_never_silent(
    tmp_path: Path, chosen: str, arguments: Sequence[str], status: int, last_line: str
) -> None:
    run = subprocess.run(
        ["scripts/pytests", "1", "--collect-only", *arguments, chosen],
        cwd=ROOT,
        env={**os.environ, "HOTCOUNT_MYSQL": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
    )
    assert run.returncode == status, run.stdout
    assert re.fullmatch(last_line, run.stdout.rstrip().splitlines()[-1]), run.stdout
