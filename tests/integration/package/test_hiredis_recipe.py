"""The offline way to hiredis (cpp/cmake/Dependencies.cmake), and what it refuses."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SDIST = "hiredis-3.5.0.tar.gz"

pytestmark = pytest.mark.skipif(
    shutil.which("cmake") is None or shutil.which("ninja") is None, reason="needs cmake and ninja"
)


def configure(build: Path, source: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *("cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja"),
            f"-DHOTCOUNT_HIREDIS_SOURCE={source}",
            # The library alone: nothing else matters here.
            *(f"-DHOTCOUNT_{part}=OFF" for part in ("TESTS", "LOADTEST", "MICRO", "PYTHON")),
        ],
        capture_output=True,
        text=True,
        timeout=100,
    )


PINNED = "c227592cc56b7df247abe4755c26723965be68972be2149fa441ac33d82131ba"
TOO_OLD = "#define HIREDIS_MAJOR 0\n#define HIREDIS_MINOR 14\n#define HIREDIS_PATCH 1\n"
WRONG_HASH = (
    "is not the hiredis that this version was built for",
    f"sha256 expected {PINNED}",
    "sha256 found",
)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({SDIST: "not the tarball that was pinned"}, WRONG_HASH),
        ({}, [f"holds neither {SDIST} nor an unpacked hiredis"]),
        ({"hiredis.h": TOO_OLD}, ["holds hiredis '0.14.1', which is older than 1.5"]),
    ],
    ids=["wrong-hash", "empty-folder", "too-old"],
)
def test_a_folder_without_the_pinned_hiredis_is_refused_with_the_reason(
    tmp_path: Path, files: dict[str, str], says: Sequence[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    run = configure(tmp_path / "build", tmp_path)
    assert run.returncode != 0
    words = " ".join(run.stderr.split())  # CMake wraps messages
    for each in says:
        assert each in words


def test_the_tarball_in_a_folder_is_enough(tmp_path: Path) -> None:
    downloads = sorted(ROOT.glob(f"build/*/_deps/download/{SDIST}"))
    if not downloads:
        pytest.skip("no build tree here has fetched the sdist")
    shutil.copy(downloads[0], tmp_path)
    run = configure(tmp_path / "build", tmp_path)
    assert run.returncode == 0, run.stderr
    assert "hiredis 1.5.0 from source" in run.stdout
    assert not (tmp_path / "build/_deps/download").exists()
