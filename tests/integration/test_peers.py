"""loadtest/peers: what it measures is checked, and what is missing is named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.peers.redis_counters import Case, Hotcount, LostAdds, main, measure, summary, table
from tests.servers import RedisServer, free_port

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, port=free_port())
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.mark.server
@pytest.mark.parametrize(("threads", "batched"), [(1, False), (4, False), (1, True)])
def test_every_add_of_a_contender_is_found(
    server: RedisServer, threads: int, batched: bool
) -> None:
    case = Case("case", threads, keys=7, batched=batched)
    contender = Hotcount(server)
    measure(server, [contender], [case], rounds=2, seconds=0.05)
    contender.close()
    assert len(case.rates["hotcount"]) == 2
    assert min(case.rates["hotcount"]) > 0


class Dropping(Hotcount):
    name = "dropping"

    def add(self, keys: list[str]) -> None:
        super().add(keys[1:])


@pytest.mark.server
def test_a_contender_that_loses_adds_fails_the_run(server: RedisServer) -> None:
    contender = Dropping(server)
    with pytest.raises(LostAdds, match="dropping: case"):
        measure(server, [contender], [Case("case", 2, keys=3)], rounds=1, seconds=0.05)
    contender.close()


def test_ratios_are_taken_within_rounds() -> None:
    case = Case("case", 1, keys=1, rates={"hotcount": [100, 60, 90], "redis-py": [10, 20, 10]})
    found = summary(case)
    assert found["ratio"] == {"median": 9, "min": 3, "max": 10}
    assert found["adds_per_s"]["redis-py"] == {"median": 10, "min": 10, "max": 20}
    assert "9.0  3.0 .. 10.0" in table([found])


def test_a_missing_peer_is_named_with_what_installs_it() -> None:
    # As in a .venv that `make peers` has not seen.
    hide = "import importlib.util as u; u.find_spec = lambda name: None"
    call = "from loadtest.peers.redis_counters import main; raise SystemExit(main([]))"
    done = subprocess.run(
        [sys.executable, "-c", f"{hide}\n{call}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "redis is not installed: run `make peers`\n"


def test_bad_usage_is_refused() -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--rounds", "0"])
    assert refused.value.code == 2
