"""loadtest/peers/web_limits.py: all contenders are measured, and none that does not ask Redis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.peers import web_limits
from loadtest.peers.limited_apps import BARE
from loadtest.peers.rounds import OURS, RATE, Case, Failed, LostAdds, Measured
from tests.support.servers import RedisServer

pytestmark = pytest.mark.server


@pytest.mark.long
def test_each_contender_has_a_row_of_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "web.json"
    words = ["--only", "flask", "--rounds", "1", "--seconds", "1", "--json", str(path)]
    assert web_limits.main(words) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if "| flask" in line]
    contenders = [OURS, *web_limits.PEERS["flask"], BARE]
    assert [row[1] for row in rows] == contenders
    assert {len(row) for row in rows} == {len(web_limits.HEAD)}
    (case,) = json.loads(path.read_text())["cases"]
    for contender in contenders:
        assert set(case["figures"][contender]) == {RATE, *web_limits.ADDED}
    assert set(case["added"][web_limits.P50]) == set(contenders) - {BARE}


def test_answers_that_have_not_reached_redis_fail_the_run(own_redis: RedisServer) -> None:
    with pytest.raises(LostAdds, match="1000 answers, and Redis has got"):
        web_limits.check(own_redis, Case("flask", "web", []), Measured(1_000, {}))


def test_an_application_that_does_not_start_fails_the_run(own_redis: RedisServer) -> None:
    with pytest.raises(Failed, match=r"(?s)the server did not start; it said: .*flash_app"):
        web_limits.load(own_redis, "flash", OURS, 1, 0)
