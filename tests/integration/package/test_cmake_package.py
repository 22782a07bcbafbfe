"""find_package(hotcount) works for a C++ project outside this repository."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.programs import captured

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build/release"

pytestmark = pytest.mark.skipif(
    shutil.which("cmake") is None or not (BUILD / "CMakeCache.txt").exists(),
    reason="needs the tree that `make build` leaves",
)

EXAMPLE = ROOT / "examples/cpp"
PROGRAMS = """
foreach(program consumer readme guide)
  add_executable(${program} ${program}.cpp)
  target_link_libraries(${program} PRIVATE hotcount::hotcount)
endforeach()
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


def run(*command: str | Path, cwd: Path | None = None, fed: str = "") -> str:
    done = captured([str(part) for part in command], cwd=cwd, input=fed)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def program_of(document: str) -> str:
    """The one block of C++ that a document shows."""
    (program,) = re.findall(
        r"^```cpp\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL
    )
    return str(program)


def test_a_project_and_the_documents_programs_build_against_an_install_prefix(
    tmp_path: Path,
) -> None:
    prefix, consumer, build = (tmp_path / name for name in ("prefix", "consumer", "build"))
    run("cmake", "--install", BUILD, "--prefix", prefix, "--component", "cpp")
    shutil.copytree(EXAMPLE, consumer)
    with (consumer / "CMakeLists.txt").open("a") as file:
        file.write(PROGRAMS)
    (consumer / "consumer.cpp").write_text(PROGRAM)
    (consumer / "readme.cpp").write_text(program_of("README.md"))
    (consumer / "guide.cpp").write_text(program_of("docs/reference/cpp.md"))
    run("cmake", "-S", consumer, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    version, hiredis = run(build / "consumer").split()
    assert version == "0.1.0"
    assert tuple(int(part) for part in hiredis.split(".")) >= (1, 5)
    assert run(build / "readme") == "1\n"
    assert run(build / "guide", cwd=tmp_path) == "changed 1, count 1\n"
    likes = "1 7\n1 8\n1 7\n2 7\n" + "".join(f"{item} 9\n" for item in range(1, 8))
    url = f"sqlite:///{tmp_path / 'likes.db'}"
    counted = ["item 1: 3", "item 2: 2", "item 3: 1", "item 4: 1", "item 5: 1"]
    told = ["user 9: too many"] * 2 + counted
    assert run(build / "likes", url, fed=likes).splitlines() == told
    # The likes of before count once.
    assert run(build / "likes", url, fed="1 8\n").splitlines() == ["item 1: 3"]
    refused = subprocess.run([build / "likes", url], input=b"1 4\nx 5\n", capture_output=True)
    assert refused.returncode == 1
    assert b"a line is not" in refused.stderr
    assert run(build / "likes", url, fed="1 8\n").splitlines() == ["item 1: 3"]
