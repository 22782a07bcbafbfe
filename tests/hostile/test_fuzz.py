"""Every Python entry point, called with hostile objects: a value or an exception, and nothing else.

HOTCOUNT_FUZZ_SEED and HOTCOUNT_FUZZ_SECONDS choose another run, or a longer one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.programs import ROOT, run_python
from tests.support.servers import RedisServer

SEEDS = [int(os.environ["HOTCOUNT_FUZZ_SEED"])] if "HOTCOUNT_FUZZ_SEED" in os.environ else [11, 12]
SECONDS = float(os.environ.get("HOTCOUNT_FUZZ_SECONDS", "6"))


def fuzz(seed: int, redis_url: str, folder: Path) -> None:
    state = folder / "state"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = run_python(
        *("-m", "tests.hostile.fuzz", seed, SECONDS, redis_url, state),
        # The fuzzer makes files with hostile names.
        cwd=folder,
        # PYTHONPATH keeps its entries: scripts/sanitize names its own build there.
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
        errors="replace",
        timeout=SECONDS + 60,
    )
    print(done.stdout)
    last = state.read_text(errors="replace").strip() if state.exists() else "nothing was called"
    assert done.returncode == 0, (
        f"seed {seed}, exit {done.returncode}, at {last}\n{done.stdout}\n{done.stderr[-4000:]}"
    )
    # A run that only ever met refusals would have tried nothing.
    _, calls, values = (int(word) for word in re.findall(r"\d+", done.stdout)[:3])
    assert calls > 300
    assert values > calls / 10


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_calls_end_with_a_value_or_an_exception(seed: int, tmp_path: Path) -> None:
    fuzz(seed, "-", tmp_path)


@pytest.mark.parametrize("seed", SEEDS[:1])
def test_hostile_calls_over_redis_end_with_a_value_or_an_exception(
    seed: int, own_redis: RedisServer, tmp_path: Path
) -> None:
    fuzz(seed, own_redis.url, tmp_path)
