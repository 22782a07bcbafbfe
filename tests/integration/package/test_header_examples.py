"""Each concept's header opens with an example: it compiles, runs, and prints what it says."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from pathlib import Path

import pytest

from tests.support.programs import captured
from tests.support.servers import RedisServer

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build/release"
HEADERS = ROOT / "cpp/include/hotcount"
CONCEPTS = [
    "concurrency_limit",
    "counter",
    "limiter",
    "live_sets",
    "memory",
    "period_counter",
    "redis",
    "slotted_counter",
    "sql",
    "votes",
    "write_behind_counter",
]
ON_REDIS = ["redis", "write_behind_counter"]

pytestmark = pytest.mark.skipif(
    shutil.which("cmake") is None or not (BUILD / "CMakeCache.txt").exists(),
    reason="needs the tree that `make build` leaves",
)

CMAKE = """\
cmake_minimum_required(VERSION 3.25)
project(examples LANGUAGES CXX)
find_package(hotcount 0.1 REQUIRED)
add_executable(examples main.cpp)
target_compile_options(examples PRIVATE -Wall -Wextra -Werror -Wno-unused-variable)
target_link_libraries(examples PRIVATE hotcount::hotcount)
"""
PROGRAM = """\
#include <cstdlib>
#include <hotcount/hotcount.hpp>
#include <iostream>
#include <map>

using namespace hotcount;

%s
int main(int, char** argv) {
    const std::map<std::string, Result<void> (*)()> examples{%s};
    const auto done = examples.at(argv[1])();
    if (!done) std::cerr << done.error().message << std::endl;
    return done ? 0 : 1;
}
"""


def example_of(concept: str) -> str:
    text = (HEADERS / f"{concept}.hpp").read_text()
    head = text.split("#pragma once")[0]
    found = re.search(r"^//   @code\n(.*?)^//   @endcode$", head, re.MULTILINE | re.DOTALL)
    assert found, f"{concept}.hpp opens with no example between @code and @endcode"
    return re.sub(r"^//(   )?", "", found[1], flags=re.MULTILINE)


def printed_by(example: str) -> list[str]:
    """What the comments behind std::cout say, line by line."""
    return re.findall(r"^.*std::cout.*;  // (.+)$", example, re.MULTILINE)


def run(*command: str | Path) -> None:
    done = captured([str(part) for part in command], timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All examples, in one program against an install prefix."""
    place = tmp_path_factory.mktemp("examples")
    prefix, source, build = (place / name for name in ("prefix", "source", "build"))
    run("cmake", "--install", BUILD, "--prefix", prefix, "--component", "cpp")
    functions = []
    for concept in CONCEPTS:
        body = example_of(concept).replace('"redis://localhost"', 'std::getenv("EXAMPLE_REDIS")')
        body = textwrap.indent(body, "    ")
        functions.append(f"Result<void> run_{concept}() {{\n{body}    return {{}};\n}}\n")
    entries = ", ".join(f'{{"{concept}", run_{concept}}}' for concept in CONCEPTS)
    source.mkdir()
    (source / "CMakeLists.txt").write_text(CMAKE)
    (source / "main.cpp").write_text(PROGRAM % ("\n".join(functions), entries))
    run("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    return build / "examples"


def check_example(program: Path, concept: str, folder: Path, redis_url: str = "") -> None:
    done = captured([program, concept], cwd=folder, env={**os.environ, "EXAMPLE_REDIS": redis_url})
    assert done.returncode == 0, done.stderr
    promised = printed_by(example_of(concept))
    assert promised, "an example shows what it prints"
    printed = iter(done.stdout.splitlines())
    for line in promised:
        assert line in printed, f"{line!r} is missing, or out of order, in {done.stdout!r}"


@pytest.mark.parametrize("concept", [concept for concept in CONCEPTS if concept not in ON_REDIS])
def test_a_headers_example_prints_what_it_says(program: Path, concept: str, tmp_path: Path) -> None:
    check_example(program, concept, tmp_path)


@pytest.mark.parametrize("concept", ON_REDIS)
def test_a_headers_example_with_redis_prints_what_it_says(
    program: Path, concept: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    check_example(program, concept, tmp_path, redis_server.url)


def test_every_concept_in_the_umbrella_header_has_an_example() -> None:
    included = set(re.findall(r"<hotcount/(\w+)\.hpp>", (HEADERS / "hotcount.hpp").read_text()))
    shared = {"build_info", "clock", "error", "op_id", "result", "retry_queue", "url"}
    assert included - shared == set(CONCEPTS)
