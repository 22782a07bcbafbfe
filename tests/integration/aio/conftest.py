"""Tests that ask for no kind of loop in particular have asyncio's own."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.loops import LoopFactory


@pytest.fixture(autouse=True)
def factory() -> LoopFactory:
    """Parametrized by those that hold on several kinds."""
    return asyncio.new_event_loop
