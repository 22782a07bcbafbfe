"""Nothing in the repository depends on the machine it was written on."""

from __future__ import annotations

import re

import pytest

from tests.codebase.tracked import ROOT, tracked

FORBIDDEN = {
    "a path of somebody's machine": re.compile(
        r"""(?<![\w.$}/-])/(?:work|root|home/(?!user/)\w+|Users/\w+)/"""
    ),
    # Which registry a user's pip asks is the user's choice.
    "a package registry's host": re.compile(
        r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:com|org)|proxy\.golang\.org|deb\.debian\.org)\b"
    ),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a picture
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if FORBIDDEN[what].search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a path of somebody's machine", "cd " + "/" + "root/hotcount"),
        ("a path of somebody's machine", 'open("' + "/" + 'home/anna/x")'),
        ("a package registry's host", "index-url = https://" + "pypi" + ".org/simple"),
    ],
)
def test_each_pattern_finds_what_it_forbids(what: str, line: str) -> None:
    assert FORBIDDEN[what].search(line)
