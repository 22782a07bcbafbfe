"""What `pip install .` brings: the package, its commands and the load generator."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# It compiles everything once more.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def ended(*words: str | Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(folder: Path, *settings: str) -> tuple[Path, str]:
    """The wheel, and what pip said."""
    pip = (sys.executable, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps")
    said = ended(*pip, *settings, "-w", folder, str(ROOT))
    (wheel,) = folder.glob("*.whl")
    return wheel, said


def installed(wheel: Path, folder: Path) -> Path:
    """The folder of the programs of an environment that has the wheel and nothing else."""
    venv.create(folder, with_pip=True)
    ended(folder / "bin/python", "-m", "pip", "install", "--no-index", wheel)
    return folder / "bin"


def test_a_wheel_brings_the_load_generator(tmp_path: Path) -> None:
    wheel, _ = build_wheel(tmp_path)
    programs = installed(wheel, tmp_path / "venv")
    load = ("load", "run", "-s", "memory", "--workload", "counters", "-d", "300ms", "--json")
    for command in [(programs / "hotcount", *load), (programs / "hotcount-load", *load[1:])]:
        assert json.loads(ended(*command))


def test_without_the_load_generators_libraries_the_package_installs(tmp_path: Path) -> None:
    wheel, said = build_wheel(
        tmp_path, "--config-settings=cmake.define.CMAKE_DISABLE_FIND_PACKAGE_CLI11=ON"
    )
    assert "without hotcount-load, because CLI11 was not found" in said
    programs = installed(wheel, tmp_path / "venv")
    assert ended(programs / "hotcount", "--version")
    done = subprocess.run(
        [programs / "hotcount", "load"], capture_output=True, text=True, check=False, env={}
    )
    assert (done.returncode, "CLI11" in done.stderr) == (3, True)
