"""hotcount-load on databases that it starts itself, and on one that is there."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support.load_generator import SMALL, run, run_json
from tests.support.servers import PostgresDatabase
from tests.support.sqlalchemy_side import BothSides

pytestmark = pytest.mark.server

STRATEGIES = "naive,slotted,batched,batched/async,insert_only"


def running_in(folder: Path) -> list[int]:
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:  # It ended while we looked.
            continue
        if str(folder).encode() in words:
            pids.append(int(process.name))
    return pids


@pytest.mark.parametrize("server", ["postgres", "mariadb"])
def test_every_strategy_on_sql_is_driven_and_audited(server: str, temporary: Path) -> None:
    code, document = run_json(
        *["compare", "-s", STRATEGIES, "--managed", server, "--rounds", "1", "-d", "400ms"],
        *["--in-flight", "50", "--timeout", "20s", *SMALL],
        timeout=110,
    )
    assert code == 0, document
    (part,) = document["parts"]
    assert [each["strategy"] for each in part["strategies"]] == STRATEGIES.split(",")
    for each in part["strategies"]:
        assert each["audit"]["acknowledged"] > 0, each
        assert each["audit"]["passed"], each
    assert running_in(temporary) == [], "the private server is still there"
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("sides", "strategy"),
    [
        ("postgresql", "batched"),
        ("postgresql", "slots/random"),
        ("mariadb", "batched"),
        ("mariadb", "slots/adaptive"),
    ],
    indirect=["sides"],
)
def test_a_run_takes_its_tables_away_unless_they_are_kept(
    strategy: str, sides: BothSides, tmp_path: Path
) -> None:
    load = ["run", "-s", strategy, "--db", sides.url, "-d", "300ms", "--processes", "2", *SMALL]
    assert run(*load).returncode == 0
    assert sa.inspect(sides.engine).get_table_names() == []
    assert run(*load, "--out", str(tmp_path / "run")).returncode == 0
    assert sa.inspect(sides.engine).get_table_names()
    assert run("audit", str(tmp_path / "run")).returncode == 0


def test_an_audit_of_a_server_includes_the_journal(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    load = ["run", "-s", "batched", "--db", postgres_database.url, "-d", "300ms", *SMALL]
    assert run(*load, "--out", str(tmp_path / "run")).returncode == 0

    def findings() -> tuple[int, ...]:
        _, document = run_json("audit", str(tmp_path / "run"))
        (audited,) = document["runs"]
        figures = audited["audit"]
        names = ("vote_count_low", "vote_count_high", "count_low", "count_high")
        return tuple(figures[name] for name in names)

    journal = postgres_database.psql(
        "SELECT table_name FROM information_schema.tables WHERE table_name LIKE '%vote_journal' "
        f"AND table_schema = '{postgres_database.schema}'"
    )
    item = journal.replace("vote_journal", "item")
    assert findings() == (0, 0, 0, 0)
    postgres_database.psql(f"UPDATE {item} SET vote_count = vote_count - 3 WHERE id = 7")
    assert findings() == (3, 0, 0, 0)
    # What waits to be folded counts, and the fold before the audit shows it.
    postgres_database.psql(f"INSERT INTO {journal} VALUES (7, 2)")
    assert findings() == (0, 2, 0, 2)
