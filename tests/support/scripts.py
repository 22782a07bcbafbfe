"""The Lua scripts as the core sends them."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).parents[2] / "cpp/src"
LIMITERS = SOURCES / "limiter/lua"
FRAME = LIMITERS / "frame/hit_keys.lua"
# token_bucket and leaky_bucket are gcra under other names.
SAME = {"token_bucket": "gcra", "leaky_bucket": "gcra"}


def script_text(path: Path) -> str:
    """A file's text; after an algorithm's step() the frame that hits keys by it."""
    text = path.read_text()
    return text + FRAME.read_text() if "local function step(" in text else text


def limiter_script(algorithm: str) -> str:
    return script_text(LIMITERS / f"{SAME.get(algorithm, algorithm)}.lua")
