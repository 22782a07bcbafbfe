"""EmbedText.cmake carries a file into a header without changing a byte of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "cpp/cmake/EmbedText.cmake"

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")


def embed(output: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *("cmake", f"-DOUTPUT={output}", "-DNAMESPACE=hotcount::scripts"),
            *(f"-DFILES={'|'.join(map(str, files))}", "-P", str(SCRIPT)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_text_that_cmake_could_mangle_survives(tmp_path: Path) -> None:
    # Lists split at ;, brackets join them again, ${} and @@ are substituted,
    # backslashes escape: each has bitten a CMake script somewhere.
    text = 'a; b;; [c; d] ${E} @F@ "g" \\n \\\\ $<h> )" é\n\n-- last line;\n'
    first, second = tmp_path / "add_with_ttl.lua", tmp_path / "vote-1.sql"
    first.write_text(text, encoding="utf-8")
    second.write_text("SELECT 1;\n")
    header = tmp_path / "out/scripts.hpp"
    run = embed(header, first, second)
    assert run.returncode == 0, run.stderr
    written = header.read_text(encoding="utf-8")
    assert f'kAddWithTtlLua = R"hotcount({text})hotcount";' in written
    assert 'kVote1Sql = R"hotcount(SELECT 1;\n)hotcount";' in written
    assert "namespace hotcount::scripts {" in written


def test_the_end_of_the_literal_inside_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.lua"
    file.write_text('return ")hotcount"')
    run = embed(tmp_path / "scripts.hpp", file)
    assert run.returncode != 0
    assert "would end the literal" in run.stderr
