"""Fixtures of the contract: every test that takes `votes` runs with every strategy, every test that
takes `limit_store` on every store.
"""

import pytest

from tests.support.votes_strategies import WAYS, strategy, votes

__all__ = ["strategy", "votes"]

DATABASES = ("sqlite-file", "sqlite-memory", "postgresql", "mariadb")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What limiters over databases and a strategy of votes leave out, and what takes long there."""
    left = []
    for item in items:
        chosen = getattr(item, "callspec", None)
        way = WAYS.get(chosen.params.get("strategy", "")) if chosen is not None else None
        if chosen is not None and way is not None and not way.cast_writes:
            if item.get_closest_marker("cast_writes") is not None:
                continue
            # Its votes are written by what writes batched's, which meets every database.
            if chosen.params.get("database") not in ("sqlite-file", None):
                item.add_marker(pytest.mark.long)
        if chosen is not None and chosen.params.get("limit_store") in DATABASES:
            algorithm = chosen.params.get("algorithm", "gcra")
            algorithm = chosen.params.get("options", {}).get("algorithm", algorithm)
            # They share their rows and transactions: one algorithm shows most of it, and
            # test_sql_limiter.py what servers do otherwise.
            if algorithm != "gcra" or chosen.params["limit_store"] != "sqlite-memory":
                item.add_marker(pytest.mark.long)
        left.append(item)
    items[:] = left
