"""find_package(hotcount) works for a C++ project outside this repository."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build/release"

pytestmark = pytest.mark.skipif(
    shutil.which("cmake") is None or not (BUILD / "CMakeCache.txt").exists(),
    reason="needs the tree that `make build` leaves",
)

CMAKE = """\
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(hotcount 0.1 REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE hotcount::hotcount)
"""
PROGRAM = """\
#include <cstdio>
#include <hotcount/build_info.hpp>
#include <hotcount/hotcount.hpp>

int main() {
    const auto info = hotcount::build_info();
    std::printf("%s %s\\n", info.at("version").c_str(), info.at("hiredis").c_str());
}
"""


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_project_of_ten_lines_builds_against_an_install_prefix(tmp_path: Path) -> None:
    prefix, consumer, build = (tmp_path / name for name in ("prefix", "consumer", "build"))
    run("cmake", "--install", BUILD, "--prefix", prefix, "--component", "cpp")
    consumer.mkdir()
    (consumer / "CMakeLists.txt").write_text(CMAKE)
    (consumer / "main.cpp").write_text(PROGRAM)
    run("cmake", "-S", consumer, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    version, hiredis = run(build / "consumer").split()
    assert version == "0.1.0"
    assert tuple(int(part) for part in hiredis.split(".")) >= (1, 2)
