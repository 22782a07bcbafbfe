"""What the compiler and the linker were asked for is in what is installed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import hotcount
import pytest
from hotcount import _core

from tests.support.load_generator import program
from tests.support.programs import captured

BUILT = [
    pytest.param(lambda: Path(str(_core.__file__)), id="extension"),
    pytest.param(lambda: Path(program()), id="hotcount-load"),
]


def readelf(option: str, path: Path) -> str:
    done = captured(["readelf", "--wide", option, str(path)], check=True)
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def optimised() -> None:
    assert hotcount.build_info()["build_type"] == "Release", "a debug build is not what is shipped"


@pytest.mark.parametrize("find", BUILT)
def test_relocations_are_read_only_before_anything_runs(find: Callable[[], Path]) -> None:
    path = find()
    assert "GNU_RELRO" in readelf("--program-headers", path)
    assert re.search(r"\bBIND_NOW\b|FLAGS_1.*\bNOW\b", readelf("--dynamic", path))
    assert re.search(r"GNU_STACK.* RW ", readelf("--program-headers", path)), "the stack runs code"


@pytest.mark.parametrize("find", BUILT)
def test_stacks_and_library_calls_are_checked(find: Callable[[], Path]) -> None:
    symbols = readelf("--dyn-syms", find())
    assert "__stack_chk_fail" in symbols
    assert re.search(r"__mem(cpy|move|set)_chk|__snprintf_chk|__vsnprintf_chk|__fd\w+_chk", symbols)
    # Of _GLIBCXX_ASSERTIONS: what an index out of range comes to.
    assert "__glibcxx_assert_fail" in symbols
