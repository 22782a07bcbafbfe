"""docs/how-to/django-votes.md as a reader follows it: its files are written, its commands run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^([^\n]*)\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# They ask, or serve until they are stopped.
LEFT_OUT = {"pip", "createsuperuser", "runserver"}


def test_the_document_leads_to_a_like_button(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "how-to" / "django-votes.md").read_text(encoding="utf-8")
    ran = []
    for before, language, text in BLOCK.findall(document):
        if language != "sh":
            (name,) = re.findall(r"`([\w/]+\.(?:py|html))`", before)
            file = tmp_path / name
            file.parent.mkdir(exist_ok=True)
            old = file.read_text() if before.startswith("At the end") else ""
            file.write_text(old + text)
            continue
        for line in text.splitlines():
            words = shlex.split(line)
            if LEFT_OUT.isdisjoint(words):
                program = ["-m", "django"] if words[0] == "django-admin" else [words[1]]
                rest = words[1:] if words[0] == "django-admin" else words[2:]
                done = subprocess.run(
                    [sys.executable, *program, *rest],
                    cwd=tmp_path,
                    env={**os.environ, "PYTHONPATH": str(tmp_path)},
                    capture_output=True,
                    text=True,
                    timeout=110,
                )
                assert done.returncode == 0, done.stdout + done.stderr
                ran.append((rest[0], done.stdout + done.stderr))
    assert [name for name, _ in ran] == [
        *("startproject", "startapp", "makemigrations", "migrate", "test")
    ]
    assert "Ran 1 test" in ran[-1][1]
