"""Objects whose __init__ never ran, or raised: each use is a TypeError that names the class."""

from __future__ import annotations

import enum
import traceback
from typing import Any

import hotcount
import pytest

from tests.hostile.classes import extension_classes
from tests.support.fired import fired
from tests.support.programs import run_python

# Nobody can make one: object.__new__ refuses.
ONLY_FROM_CALLS = {"hotcount._core.Pending", "hotcount._core.NativeFunction"}
# Their members are all there are, and are objects of Python.
ENUMS = {name for name, cls in extension_classes().items() if issubclass(cls, enum.Enum)}


def test_sync_and_async_classes_are_found() -> None:
    found = set(extension_classes())
    assert {"hotcount.Counter", "hotcount.aio.Counter", "hotcount.Votes", "hotcount.Casts"} <= found
    assert {"hotcount.Limiter", "hotcount.aio.Limiter"} <= found
    assert found >= ONLY_FROM_CALLS


@pytest.mark.parametrize("name", sorted(set(extension_classes()) - ONLY_FROM_CALLS - ENUMS))
def test_every_use_of_an_object_whose_init_never_ran_is_a_type_error(name: str) -> None:
    done = run_python("-X", "faulthandler", "-m", "tests.hostile.unfinished", name)
    lines = done.stdout.splitlines()
    told = [line for line in lines if line.startswith("WRONG")] or lines[-1:]
    assert done.returncode == 0, "\n".join([*told, done.stderr[-2000:]])
    assert len(lines) >= 3
    fired("unfinished object")


@pytest.mark.parametrize("name", sorted(ONLY_FROM_CALLS))
def test_what_only_calls_make_cannot_be_made_by_hand(name: str) -> None:
    cls = extension_classes()[name]
    with pytest.raises(TypeError):
        cls()
    with pytest.raises(TypeError):
        object.__new__(cls)


def test_self_in_the_traceback_of_a_constructor_that_raised_is_refused_and_harmless() -> None:
    class Mine(hotcount.Counter):
        def __init__(self) -> None:
            super().__init__("memory://", op_keep="soon")  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="op_keep") as raised:
        Mine()
    frame: Any = list(traceback.walk_tb(raised.value.__traceback__))[-1][0]
    unfinished = frame.f_locals["self"]
    with pytest.raises(TypeError, match=r"Counter.__init__\(\)"):
        repr(unfinished)


def test_an_unfinished_object_as_an_argument_is_refused() -> None:
    memory = hotcount.Memory.__new__(hotcount.Memory)
    with pytest.raises(TypeError, match=r"Memory.__init__\(\)"):
        hotcount.Counter(memory)
    rate = hotcount.Rate.__new__(hotcount.Rate)
    with pytest.raises(TypeError, match=r"Rate.__init__\(\)"):
        hotcount.Limiter("memory://", rate)


def test_a_second_init_of_a_declared_class_is_refused() -> None:
    limiter = hotcount.Limiter("memory://", "5/minute")
    limiter.hit("k", 2)
    with pytest.raises(TypeError, match=r"Limiter.__init__\(\) was called already"):
        limiter.__init__("memory://", "7/minute")  # type: ignore[misc]
    assert limiter.hit("k").remaining == 2
    counter = hotcount.Counter("memory://")
    counter.add("k", 5)
    with pytest.raises(TypeError, match=r"Counter.__init__\(\) was called already"):
        counter.__init__("memory://other")  # type: ignore[misc]
    assert counter.get("k") == 5


def test_import_in_a_subinterpreter_is_an_import_error_at_once() -> None:
    code = (
        "import sys\n"
        "if sys.version_info < (3, 13):\n"
        "    import _xxsubinterpreters as subinterpreters\n"
        "    made = subinterpreters.create()\n"
        "    try:\n"
        "        subinterpreters.run_string(made, 'import hotcount')\n"
        "    except subinterpreters.RunFailedError as failed:\n"
        "        print(failed)\n"
        "else:\n"
        "    import _interpreters as subinterpreters\n"
        "    made = subinterpreters.create()\n"
        "    print(subinterpreters.exec(made, 'import hotcount').formatted)\n"
        "subinterpreters.destroy(made)\n"
        "import hotcount\n"  # The main interpreter is none the worse for it.
        "print(hotcount.Counter('memory://').add('k'))\n"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    refused, works = done.stdout.splitlines()
    assert "ImportError" in refused
    fired("subinterpreter")
    # From 3.13 on CPython says it: the module "does not support loading in subinterpreters".
    assert "main interpreter" in refused or "subinterpreters" in refused
    assert works == "1"
