"""A fixture that tests of several folders share."""

from __future__ import annotations

import pytest

from tests.support.journal_side import JournalSide


@pytest.fixture
def side(journal_side: JournalSide) -> JournalSide:
    return journal_side
