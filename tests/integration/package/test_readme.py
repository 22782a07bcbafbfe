"""Every block of README.md runs and prints what it shows, and so do the recipes of docs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.page_blocks import ROOT, blocks_of, run_session
from tests.support.programs import captured

BLOCKS = blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))
SHELL = [
    pytest.param(line, id=line)
    for block in BLOCKS
    if block.language == "sh"
    for line in block.text.splitlines()
]


def test_every_block_is_of_a_kind_that_runs_here() -> None:
    assert {block.language for block in BLOCKS} == {"sh", "pycon", "cpp"}


def test_the_commands_shown_first_are_the_two_that_need_no_explanation() -> None:
    shown = [line for block in BLOCKS for line in block.text.splitlines() if line[:5] == "make "]
    assert shown == ["make demo", "make test"]


DOCUMENTS = [
    "README.md",
    *(
        page.relative_to(ROOT).as_posix()
        for kind in ("reference", "explanation")
        for page in sorted((ROOT / "docs" / kind).glob("*.md"))
        if "```pycon" in page.read_text(encoding="utf-8")
    ),
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_blocks_print_what_they_show(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = blocks_of((ROOT / document).read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}  # One session: later blocks use what earlier ones made.
    sessions = [block.text for block in blocks if block.language == "pycon"]
    assert sessions
    for session in sessions:
        run_session(session, names, document)


# The loads of make demo take all cores, and its build takes the tree that other tests read.
@pytest.mark.alone
@pytest.mark.parametrize("command", SHELL)
@pytest.mark.timeout(900)
def test_shell_commands_succeed(command: str, tmp_path: Path) -> None:
    if command == "make test":
        return  # This is it.
    where = ROOT if command.startswith("make ") else tmp_path
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    # The tables that it prints by default, of shorter loads.
    environment["DEMO_ARGS"] = "-d 400ms --rounds 1"
    # A make above this one hands down flags that are not for this one.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
        environment.pop(name, None)
    done = captured(command, shell=True, cwd=where, env=environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.strip(), "it printed nothing"
