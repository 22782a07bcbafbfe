"""Includes point forward only, and the check finds those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.codebase.layers import circles, reaches_itself, sources, violations

ROOT = Path(__file__).resolve().parents[2]


def test_no_include_points_backward() -> None:
    # Without this an empty tree, or a wrong ROOT, would pass.
    rooms = {room for room, _ in sources(ROOT)}
    assert {("core", "votes/tables"), ("python", "aio"), ("loadtest", "load")} <= rooms
    assert violations(ROOT) == []


def test_no_room_includes_itself_through_others() -> None:
    assert circles() == []


def test_hotcount_hpp_includes_each_public_header() -> None:
    folder = ROOT / "cpp/include/hotcount"
    text = (folder / "hotcount.hpp").read_text(encoding="utf-8")
    names = {header.name for header in folder.glob("*.hpp")} - {"hotcount.hpp"}
    assert "counter.hpp" in names
    assert {name for name in names if f"#include <hotcount/{name}>" not in text} == set()


def test_a_circle_of_rooms_is_found() -> None:
    rooms = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert reaches_itself(rooms) == ["a", "b", "c"]


FORWARD = [
    ("cpp/src/votes/strategies/a.cpp", "<hotcount/slotted_counter.hpp>"),
    ("cpp/src/sql/a.cpp", '"private.hpp"'),
    ("cpp/src/counter/a.cpp", "<hotcount/redis.hpp>"),
    ("cpp/include/hotcount/hotcount.hpp", "<hotcount/votes.hpp>"),
    ("python/src/a.cpp", "<pybind11/pybind11.h>"),
    ("loadtest/src/load/a.cpp", "<hotcount/hotcount.hpp>"),
    ("loadtest/micro/a.cpp", '"sql/private.hpp"'),
]


@pytest.mark.parametrize(
    ("path", "include", "complaint"),
    [
        ("cpp/include/hotcount/detail/base/a.hpp", "<hotcount/sql.hpp>", "backward"),
        ("cpp/src/redis/a.cpp", '"hotcount/counter.hpp"', "backward"),
        ("cpp/src/sql/a.cpp", "<hotcount/redis.hpp>", "backward"),
        ("cpp/src/memory/a.cpp", "<hotcount/hotcount.hpp>", "backward"),
        ("cpp/src/counter/a.cpp", "<hotcount/votes.hpp>", "backward"),
        ("cpp/src/limiter/a.cpp", "<hotcount/counter.hpp>", "backward"),
        ("cpp/src/base/a.cpp", '"../sql/private.hpp"', "backward"),
        ("cpp/src/base/a.cpp", '"sql/private.hpp"', "backward"),
        ("cpp/src/base/a.cpp", '"hotcount_embedded/counter/lua.hpp"', "backward"),
        ("cpp/src/votes/a.cpp", "<Python.h>", "only python/src"),
        ("cpp/include/hotcount/detail/votes/a.hpp", "<pybind11/pybind11.h>", "only python/src"),
        ("loadtest/src/load/a.cpp", '"../../../cpp/src/sql/private.hpp"', "no public header"),
        ("loadtest/src/load/a.cpp", '"sql/private.hpp"', "no public header"),
        ("loadtest/src/load/a.cpp", '"hotcount_embedded/counter/lua.hpp"', "no public header"),
        ("cpp/src/utils/a.cpp", "<vector>", "no room"),
        *((path, include, "") for path, include in FORWARD),
    ],
)
def test_an_include_is_caught_where_it_goes_backward(
    tmp_path: Path, path: str, include: str, complaint: str
) -> None:
    private = tmp_path / "cpp/src/sql/private.hpp"
    private.parent.mkdir(parents=True)
    private.write_text("#pragma once\n")
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#include <string>\n  #  include {include}\n")
    found = violations(tmp_path)
    assert len(found) == bool(complaint)
    assert all(each.startswith(path) and complaint in each for each in found)
