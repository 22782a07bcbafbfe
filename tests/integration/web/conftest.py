"""The Django project whose commands the tests of the app for votes run."""

from pathlib import Path

import pytest

from tests.support.django_site import Site, new_site
from tests.support.sqlalchemy_side import BACKENDS


@pytest.fixture(params=BACKENDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return new_site(request, request.param, tmp_path)


@pytest.fixture
def lite(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """On SQLite, where nothing depends on the database."""
    return new_site(request, "sqlite", tmp_path)
