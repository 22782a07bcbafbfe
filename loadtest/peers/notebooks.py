"""Runs the notebooks in full, and keeps their outputs: what is committed comes from here.

    make notebooks
    make notebooks NOTEBOOKS="limiters counters"

They start a private Redis each; those of ON_SERVERS get a private PostgreSQL and a private MariaDB
with full durability as well. Pictures become SVG, which is small and is shown everywhere,
so Chromium must be on the PATH. Each notebook's table of claims is printed, and put into its page,
docs/explanation/claims-*.md.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

import jupytext
from nbclient import NotebookClient

from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks"
PAGES = ROOT / "docs" / "explanation"
# Notebooks that use PostgreSQL and MariaDB if they are given URLs.
ON_SERVERS = ("slotted_counters", "strategies", "votes")
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def run(name: str) -> str:
    """The table of claims that the notebook ends with; the notebook is rewritten."""
    path = FOLDER / f"{name}.ipynb"
    notebook = jupytext.read(path)
    client = NotebookClient(
        notebook,
        timeout=900,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute()
    jupytext.write(notebook, path)
    return str(notebook.cells[-1].outputs[-1]["data"]["text/markdown"])


def publish(name: str, table: str) -> None:
    """Puts the table between its marks in the notebook's page."""
    marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    page = PAGES / f"claims-{name.replace('_', '-')}.md"
    text = page.read_text()
    page.write_text(marks.sub(lambda found: f"{found[1]}{table}\n{found[2]}", text))


def main() -> int:
    parser = argparse.ArgumentParser(prog="notebooks", description="Runs the notebooks in full.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all")
    chosen = parser.parse_args().names or NAMES
    for name in chosen:
        if name not in NAMES:
            parser.error(f"{name}: there are {', '.join(NAMES)}")
    os.environ["PLOTLY_RENDERER"] = "svg"
    for name in chosen:
        with ExitStack() as stack:
            if name in ON_SERVERS:
                postgres, mariadb = PostgresServer().start(), MariaDbServer().start()
                stack.callback(postgres.remove)
                stack.callback(mariadb.remove)
                urls = f"{postgres.url()} {mariadb.url(mariadb.create_database())}"
                os.environ["HOTCOUNT_NOTEBOOK_DATABASES"] = urls
            table = run(name)
        print(table, flush=True)
        publish(name, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
