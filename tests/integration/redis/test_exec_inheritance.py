"""What a program that we start finds open: no connection of a database's."""

from __future__ import annotations

import os
import subprocess
import sys

import hotcount

from tests.support.together import together

LIST = """
import os
for number in os.listdir("/proc/self/fd"):
    print(os.path.realpath(f"/proc/self/fd/{number}"))
"""


def open_here() -> set[str]:
    links = set()
    for number in os.listdir("/proc/self/fd"):
        link = os.path.realpath(f"/proc/self/fd/{number}")
        if "socket:" in link or ".db" in link:
            links.add(link.rsplit("/", 1)[-1])
    return links


def test_a_program_inherits_no_connection(database: hotcount.Database) -> None:
    before = open_here()
    with hotcount.Votes(database) as votes:
        votes.create_tables()
        votes.add_items([1])
        together(lambda user: (votes.cast(1, user), votes.count(1)), 8)
        ours = open_here() | before
        # As programs written in other languages start others: with all that may be inherited.
        done = subprocess.run(
            [sys.executable, "-c", LIST],
            close_fds=False,
            capture_output=True,
            text=True,
            check=True,
        )
        inherited = {line.rsplit("/", 1)[-1] for line in done.stdout.splitlines()}
        assert not inherited & ours
