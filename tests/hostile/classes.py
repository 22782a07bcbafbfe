"""Every class of hotcount, found by inspection, and the arguments that its methods require."""

from __future__ import annotations

import inspect
import re
from types import ModuleType
from typing import Any

import hotcount
import hotcount.aio
from hotcount import _core


def extension_classes() -> dict[str, Any]:
    """The classes of the extension, by the name that their module gives them."""
    found: dict[str, Any] = {}
    modules: tuple[tuple[str, ModuleType], ...] = (
        ("hotcount", hotcount),
        ("hotcount.aio", hotcount.aio),
        ("hotcount._core", _core),
    )
    for prefix, module in modules:
        for name, value in vars(module).items():
            if not isinstance(value, type) or issubclass(value, BaseException):
                continue
            ours = value.__module__.startswith("hotcount._core") or issubclass(value, _core.Handle)
            if ours and value not in found.values():
                found[f"{prefix}.{name}"] = value
    return found


def class_named(name: str) -> Any:
    return extension_classes()[name]


def members(cls: type) -> dict[str, object]:
    """What a class and its bases define beyond `object`."""
    found: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("hotcount"):
            found.update(vars(base))
    return found


def required_keywords(method: object) -> list[str]:
    """The keyword-only parameters without a default."""
    if not inspect.isfunction(method):
        return []
    return [
        name
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]


def required_parameters(method: object) -> int:
    """How many arguments without a default it takes, self aside.

    Read from its signature, or from its docstring's first line if Python does not declare it.
    """
    if inspect.isfunction(method) or isinstance(method, _core.NativeFunction):
        taken = list(inspect.signature(method).parameters.values())[1:]
        return sum(
            parameter.default is parameter.empty
            for parameter in taken
            if parameter.kind is not parameter.KEYWORD_ONLY
        )
    doc = inspect.getdoc(method) or ""
    shown = re.match(r"[\w.]+\((.*)\) ?(->.*)?$", doc.split("\n", 1)[0])
    if shown is None:
        return 0
    # Brackets of annotations hold commas of their own.
    text, depth = "", 0
    for character in shown[1]:
        depth += (character in "[(") - (character in "])")
        text += "|" if depth and character == "," else character
    count = 0
    for part in (part.strip() for part in text.split(",")):
        if part.startswith(("*", "/")):
            break
        count += bool(part) and part.split(":")[0] != "self" and "=" not in part
    return count
