"""
The extension behind hotcount; import names from hotcount itself.
"""

from __future__ import annotations

import typing

class Handle:
    """
    What all counters, limiters and sets are in C++.
    """

    def __init__(self, *arguments: typing.Any, **options: typing.Any) -> None: ...

class Buffer(Handle):
    """
    A Handle whose memory NumPy takes as it is.
    """

    def __buffer__(self, flags: int, /) -> memoryview: ...

class NativeFunction:
    """
    A declared function whose body is C++.
    """

    def __call__(self, *arguments: typing.Any, **options: typing.Any) -> typing.Any: ...

def batch(cls: typing.Any) -> typing.Any:
    """
    Has C++ make objects of a declared batch.
    """

def native(function: typing.Any) -> typing.Any:
    """
    The C++ body of a declared function. ImportError where the two differ.
    """

def options(name: str) -> dict[str, typing.Any]:
    """
    What reads each option that C++ has for a class, by its name.
    """

def result(cls: typing.Any) -> typing.Any:
    """
    Has C++ fill a declared result. ImportError where its fields differ.
    """

def undeclared() -> list[str]:
    """
    What C++ has and no module that is imported so far declares.
    """

__version__: str = "0.1.0"
