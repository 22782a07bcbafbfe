"""hotcount-load on databases that it starts itself, and on one that is there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.load_generator import SMALL, run, run_json
from tests.mariadb_server import MariaDbServer
from tests.servers import PostgresServer

pytestmark = pytest.mark.server

STRATEGIES = "naive,slotted,batched,batched/async"


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the program puts what it keeps for itself: PostgreSQL's own user must get in."""
    with tempfile.TemporaryDirectory(prefix="hotcount-load-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        monkeypatch.setenv("TMPDIR", name)
        yield folder


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


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_run_takes_its_tables_away_unless_they_are_kept_for_an_audit(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: PostgresServer | MariaDbServer = request.getfixturevalue(f"{kind}_server")
    name = server.create_database()
    url = server.url(name)

    def tables() -> int:
        sql = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = "
        if isinstance(server, MariaDbServer):
            return int(server.execute(sql + "%s", (name,))[0][0])
        return int(server.psql(sql + "'public'", database=name))

    load = ["run", "-s", "batched", "--db", url, "-d", "300ms", *SMALL]
    try:
        assert run(*load).returncode == 0
        assert tables() == 0
        folder = str(tmp_path / "run")
        assert run(*load, "--out", folder).returncode == 0
        assert tables() > 0
        assert run("audit", folder).returncode == 0
    finally:
        server.drop_database(name)
