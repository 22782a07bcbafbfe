"""The suite of the `limits` library on our storages: fetched when it is run, never kept here."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.programs import captured
from tests.support.servers import RedisServer

CONFTEST = Path(__file__).parents[2] / "support" / "limits_suite_conftest.py"
MODULES = ("test_strategy", "test_storage", "aio/test_strategy", "aio/test_storage")
# What is left out, and why:
#   huge_cost     a moving window of 1,000,000: sliding_log takes 100,000 at most
LEFT_OUT = "not huge_cost"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_suite_of_limits_passes(tmp_path: Path, own_redis: RedisServer) -> None:
    version = importlib.metadata.version("limits")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--no-binary=:all:", f"limits=={version}", "-d", str(tmp_path)),
        ],
        check=True,
    )
    with tarfile.open(tmp_path / f"limits-{version}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    suite = tmp_path / f"limits-{version}"
    # What is tested is the library that is installed.
    shutil.rmtree(suite / "limits")
    shutil.copy(CONFTEST, suite / "tests" / "conftest.py")
    done = captured(
        [
            *(sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(suite)),
            *("-q", "-p", "no:cacheprovider", "-W", "ignore", "-k", LEFT_OUT),
            *(f"tests/{module}.py" for module in MODULES),
        ],
        cwd=suite,
        env={**os.environ, "HOTCOUNT_SUITE_URL": own_redis.url},
    )
    print(done.stdout[-3000:])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 100
