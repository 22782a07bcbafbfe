"""Every block of the tutorials and how-to guides runs and prints what it shows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hotcount
import pytest

from tests.support.page_blocks import ROOT, blocks_of
from tests.support.programs import run_python
from tests.support.servers import PostgresDatabase, RedisServer

# They have tests of their own, which check more.
ELSEWHERE = {
    "docs/how-to/cluster.md",  # tests/integration/redis/test_cluster.py
    "docs/how-to/django-votes.md",  # tests/integration/web/test_example_django.py
    "docs/how-to/failover.md",  # tests/faults/test_failover.py
    "docs/how-to/galera.md",  # tests/faults/test_galera.py
    "docs/how-to/sentinel.md",  # tests/integration/redis/test_sentinel.py
    "docs/how-to/sqlalchemy.md",  # tests/integration/sql/test_sqlalchemy_models.py
}


def pages() -> list[str]:
    """Pages with a block that runs: all of the two folders, and sessions of the others."""
    found = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT).as_posix()
        languages = {block.language for block in blocks_of(path.read_text(encoding="utf-8"))}
        guide = name.startswith(("docs/tutorials/", "docs/how-to/")) and languages - {"{toctree}"}
        if (guide or name == "docs/choose.md") and name not in ELSEWHERE:
            found.append(name)
    return found


@pytest.mark.timeout(300)  # A page of a dozen commands starts Python for each.
@pytest.mark.parametrize("page", pages())
def test_the_blocks_of_a_page_run(
    page: str, own_redis: RedisServer, postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    with hotcount.Votes(postgres_database.url) as votes:
        votes.create_tables()
        votes.add_items([7, 8])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "REDIS_URL": own_redis.url.replace("redis+unix:", "unix:"),  # As redis-py has it.
        "DATABASE_URL": postgres_database.url,
    }
    module = ("-W", "error", "-m", "tests.support.page_blocks")
    done = run_python(*module, page, cwd=folder, env=environment, timeout=280)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.endswith("ran\n")
