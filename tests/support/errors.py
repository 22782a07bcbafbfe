"""Errors of a batch, as tests compare them, and values in the names of tests."""

import re
from collections.abc import Mapping
from typing import Any


def kinds(errors: Mapping[Any, BaseException]) -> dict[Any, str]:
    """The names of the errors' classes, by their places in the batch."""
    return {place: type(error).__name__ for place, error in errors.items()}


def shown(value: object) -> str:
    """The same in every process: without addresses."""
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))
