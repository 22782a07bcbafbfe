"""The committed stub says what the installed extension says."""

from __future__ import annotations

import pytest

from tests.codebase.stubs import drift


def test_the_stub_has_not_drifted() -> None:
    pytest.importorskip("pybind11_stubgen")
    assert drift() == "", "run scripts/stubs and commit the result"
