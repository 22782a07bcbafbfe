"""What documents, comments and docstrings say of other files is true: the files are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.codebase.tracked import ROOT, tracked

# A path of ours: its first folder, at least one more part, maybe with * or {a,b} in it.
PATH = re.compile(
    r"(?<![\w/.{}$-])((?:cpp|python|loadtest|tests|docs|scripts|notebooks|examples)/[\w./*-]*[\w*])"
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")
# History names files as they were; the hygiene tests and those of layers name files that are not.
LEFT_OUT = ("CHANGELOG.md", "tests/codebase/")
SUFFIXES = {".md", ".py", ".hpp", ".cpp", ".lua", ".cmake", ".toml"}
# In the build tree.
BUILT = {"loadtest/micro/hotcount-micro"}
# A test of ours by its name, in a document.
TEST = re.compile(r"`(test_\w+)`")
# A file of ours by its name alone, in a comment.
BARE = re.compile(r"(?<![\w/.<\"-])(\w+\.(?:hpp|cpp|lua))\b")
COMMENT = re.compile(r"(?://|--|#).*")


def is_there(named: str, files: list[str], folders: set[str]) -> bool:
    if "*" in named:
        pattern = re.compile(re.escape(named).replace(r"\*", "[^/]*"))
        return any(pattern.match(file) for file in files)
    return (
        named in folders
        or named in files
        or named in BUILT
        # "cpp/src/votes/folder" stands for the header and the source.
        or any(file.startswith(named + ".") for file in files)
    )


def test_every_file_that_a_text_names_exists() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in tracked()]
    folders = {parent.as_posix() for name in files for parent in Path(name).parents}
    missing = []
    for name in files:
        if Path(name).suffix not in SUFFIXES or name.startswith(LEFT_OUT):
            continue
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            for match in PATH.finditer(line):
                if not is_there(match[1].rstrip("."), files, folders):
                    missing.append(f"{name}:{number}: {match[1]}")
    assert missing == []


def test_every_file_that_a_comment_names_exists() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in tracked()]
    names = {Path(name).name for name in files}
    missing = []
    for name in files:
        if Path(name).suffix not in {".hpp", ".cpp", ".lua"}:
            continue
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            comment = COMMENT.search(line)
            for match in BARE.finditer(comment[0] if comment else ""):
                if match[1] not in names:
                    missing.append(f"{name}:{number}: {match[1]}")
    assert missing == []


def test_every_link_of_a_document_leads_somewhere() -> None:
    broken = []
    for path in tracked():
        if path.suffix != ".md":
            continue
        for link in LINK.findall(path.read_text(encoding="utf-8")):
            if not (path.parent / link).resolve().exists():
                broken.append(f"{path.relative_to(ROOT)}: {link}")
    assert broken == []


def test_every_test_that_a_document_names_exists() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in tracked() if path.suffix == ".md"}
    sources = [path for path in tracked() if path.match("test_*.py")]
    defined = {
        name
        for path in sources
        for name in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))
    }
    named = {name for text in texts.values() for name in TEST.findall(text)}
    assert named - defined == set()
    # The table of complaints has one for each row.
    assert len(named) >= 18


@pytest.mark.parametrize(
    ("path", "begins"),
    [
        ("docs/tutorials/first-limit.md", "## Limit a function"),
        ("docs/reference/limiter-holding.md", "## The decorator"),
        ("python/hotcount/limiter.py", '"""Decorates a function'),
    ],
)
def test_where_the_decorator_is_described_its_refusal_is_too(path: str, begins: str) -> None:
    told = (ROOT / path).read_text(encoding="utf-8").partition(begins)[2]
    told = re.split(r"\n## |\nSorted sets|return decorator", told)[0]
    assert "LimitExceeded" in told
    assert "headers()" in told


def test_every_uri_of_limits_has_its_import_beside_it() -> None:
    texts = [path for path in tracked() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    paragraphs = [
        paragraph
        for path in texts
        for paragraph in re.split(r"\n\n|\n- ", path.read_text(encoding="utf-8"))
        if "hotcount+redis" in paragraph
    ]
    assert len(paragraphs) >= 2
    for paragraph in paragraphs:
        assert "import hotcount.integrations.limits" in paragraph
