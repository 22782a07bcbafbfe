"""The notebooks run, on loads that take milliseconds, and are what their .py twins say."""

from __future__ import annotations

import os
from pathlib import Path

import jupytext
import pytest

from tests.support.programs import run_python

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# A picture is made, and not shown: nobody looks.
SMALL = {
    "HOTCOUNT_NOTEBOOK_SECONDS": "0.05",
    "HOTCOUNT_NOTEBOOK_ROUNDS": "1",
    "PLOTLY_RENDERER": "json",
}
# Pictures included. A copy of Plotly's JavaScript alone is 4 MB.
LARGEST = 250_000

each_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_is_a_notebook_for_each_group_of_claims() -> None:
    names = {path.stem for path in NOTEBOOKS}
    assert names == {
        *("counters", "limiters", "slotted_counters", "sorted_sets", "strategies", "votes")
    }


@each_notebook
@pytest.mark.server
@pytest.mark.timeout(300)
def test_notebook_runs(notebook: Path) -> None:
    # In a process of its own: pytest's settings here would apply to Jupyter's own warnings.
    options = ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ROOT]
    environment = {**os.environ, **SMALL, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    done = run_python("-m", "pytest", "--nbmake", *options, notebook, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@each_notebook
def test_notebook_is_its_text_twin(notebook: Path) -> None:
    paired = [
        [(cell.cell_type, cell.source) for cell in jupytext.read(path).cells]
        for path in (notebook, notebook.with_suffix(".py"))
    ]
    assert paired[0] == paired[1], f"jupytext --sync {notebook.relative_to(ROOT)}"


@each_notebook
def test_notebook_is_committed_with_the_outputs_of_a_run(notebook: Path) -> None:
    cells = jupytext.read(notebook).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert notebook.stat().st_size < LARGEST, "make notebooks keeps pictures as SVG"


@each_notebook
def test_the_claims_of_a_committed_run_stand_in_the_document(notebook: Path) -> None:
    last = jupytext.read(notebook).cells[-1]
    table = last.outputs[-1]["data"]["text/markdown"]
    assert table.startswith("| claim | measured | verdict |")
    page = f"claims-{notebook.stem.replace('_', '-')}.md"
    document = (ROOT / "docs" / "explanation" / page).read_text(encoding="utf-8")
    assert f"<!-- {notebook.stem} -->\n{table}\n<!-- end -->" in document, "make notebooks"
