"""What tests of several rooms ask a database of."""

from __future__ import annotations

import pytest

from tests.support.journal_side import JournalSide


@pytest.fixture
def side(journal_side: JournalSide) -> JournalSide:
    return journal_side
