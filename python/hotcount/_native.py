"""Joins what is declared in Python to what C++ executes.

A public class is written here in Python: its signatures, defaults, types and docstrings. `native`
replaces the body of a function by the one that C++ has for its name, `result` has C++ fill a
dataclass, `attributes` makes each option of a constructor an attribute. Where the two sides do not
agree, the import fails with an ImportError that names the difference.
docs/explanation/python-surface.md explains how to add a method or an option.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any, TypeVar

from hotcount import _core

Declaration = TypeVar("Declaration", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)


def native(declaration: Declaration) -> Declaration:
    """The C++ body of a declared function or method, `def` or `async def`.

    It has the declaration's name, signature, annotations and docstring, and its code's flags, so
    that inspect, typing, help(), FastAPI and Sphinx read the declaration.
    """
    body: Declaration = _core.native(declaration)
    return body


def result(cls: Class) -> Class:
    """A frozen dataclass with slots that calls of C++ return."""
    # Before Python 3.12, those of dataclass(slots=True) refer to the class that it has replaced.
    for name in ("__setattr__", "__delattr__"):
        setattr(cls, name, _refuse)
    joined: Class = _core.result(cls)
    return joined


def _refuse(self: object, name: str, *value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to {name!r}: results do not change")


def batch(cls: Class) -> Class:
    """A Sequence that calls of C++ return, with each column that C++ has for it as an attribute."""
    joined: Class = _core.batch(cls)
    return attributes(joined, "The column {}: numpy.asarray() takes it without copying.")


def attributes(cls: Class, doc: str = "The option {} of the constructor.") -> Class:
    """Gives a class each option that C++ has for it as an attribute that cannot be set.

    The class says the type of each by an annotation; an option without one, and an annotation
    without an option, are an ImportError.
    """
    getters = _core.options(cls.__name__)
    declared = inspect.get_annotations(cls)
    if set(declared) != set(getters):
        differs = ", ".join(sorted(set(declared) ^ set(getters)))
        raise ImportError(f"hotcount: the options of {cls.__name__} differ from C++: {differs}")
    for name, getter in getters.items():
        setattr(cls, name, property(getter, doc=doc.format(name)))
    return cls


def require_all_declared() -> None:
    """ImportError where C++ has a function or a result that nothing declares."""
    if missing := _core.undeclared():
        raise ImportError(f"hotcount: C++ has what Python does not declare: {', '.join(missing)}")
