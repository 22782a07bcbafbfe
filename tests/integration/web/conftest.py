"""The demo's page, of one test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.vote_page import VotePage


@pytest.fixture
def page(tmp_path: Path) -> Iterator[VotePage]:
    page = VotePage(tmp_path)
    yield page
    page.kill()
