"""Errors of a batch, as tests compare them."""

from collections.abc import Mapping
from typing import Any


def kinds(errors: Mapping[Any, BaseException]) -> dict[Any, str]:
    """The names of the errors' classes, by their places in the batch."""
    return {place: type(error).__name__ for place, error in errors.items()}
