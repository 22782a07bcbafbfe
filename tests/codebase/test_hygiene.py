"""Nothing in the repository depends on the machine it was written on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FORBIDDEN = {
    "a path of somebody's machine": re.compile(
        r"""(?<![\w.$}/-])/(?:work|root|home/(?!user/)\w+|Users/\w+)/"""
    ),
    # Which registry a user's pip asks is the user's choice.
    "a package registry's host": re.compile(
        r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:com|org)|proxy\.golang\.org|deb\.debian\.org)\b"
    ),
}


def tracked() -> list[Path]:
    try:
        names = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git work tree")
    # A file that is deleted but not yet committed is listed too.
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


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
def test_the_patterns_match(what: str, line: str) -> None:
    assert FORBIDDEN[what].search(line)
