"""The Lua scripts as the core sends them."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).parents[2] / "cpp/src"
LIMITERS = SOURCES / "limiter/lua"
FRAME = LIMITERS / "frame/hit_keys.lua"
JOINT = LIMITERS / "frame/hit_all.lua"
ONCE = LIMITERS / "frame/hit_once.lua"
# The algorithms that are a step; others bring a whole script.
STEPS = tuple(
    path.stem
    for path in sorted(LIMITERS.glob("*.lua"))
    if "local function step(" in path.read_text()
)
# token_bucket and leaky_bucket are gcra under other names.
SAME = {"token_bucket": "gcra", "leaky_bucket": "gcra"}


def script_text(path: Path) -> str:
    """A file's text; after an algorithm's step() the frame for it, before hit_all all steps.

    Before hit_once the script of gcra.
    """
    text = path.read_text()
    if path == JOINT:
        steps = [
            f"do\n{(LIMITERS / f'{name}.lua').read_text()}\nsteps['{name}'] = step\nend\n"
            for name in STEPS
        ]
        return "local steps = {}\n" + "".join(steps) + text
    if path == ONCE:
        hit = limiter_script("gcra")
        return f"local function hit(KEYS, ARGV)\n{hit}\nend\n{text}"
    return text + FRAME.read_text() if "local function step(" in text else text


def limiter_script(algorithm: str) -> str:
    return script_text(LIMITERS / f"{SAME.get(algorithm, algorithm)}.lua")
