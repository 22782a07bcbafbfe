"""The notebooks run, on loads that take seconds, and are what their .py twins say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

SMALL = {"HOTCOUNT_NOTEBOOK_DURATION": "300ms", "HOTCOUNT_NOTEBOOK_ROUNDS": "1"}


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.timeout(300)
def test_notebook_runs(notebook: Path) -> None:
    # In a process of its own: pytest's settings here would apply to Jupyter's own warnings.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--nbmake", "-p", "no:cacheprovider", "-c", os.devnull]
        + ["--rootdir", str(ROOT), str(notebook)],
        env={**os.environ, **SMALL, "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_its_text_twin(notebook: Path) -> None:
    paired = [
        [(cell.cell_type, cell.source) for cell in jupytext.read(path).cells]
        for path in (notebook, notebook.with_suffix(".py"))
    ]
    assert paired[0] == paired[1], f"jupytext --sync {notebook.relative_to(ROOT)}"
