"""Fixtures of the contract: every test that takes `votes` runs with every strategy."""

from tests.support.votes_strategies import strategy, votes

__all__ = ["strategy", "votes"]
