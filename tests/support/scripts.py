"""The Lua scripts as the core sends them."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).parents[2] / "cpp/src"
LIMITERS = SOURCES / "limiter/lua"
FRAME = LIMITERS / "frame/hit_keys.lua"
JOINT = LIMITERS / "frame/hit_all.lua"
ONCE = LIMITERS / "frame/hit_once.lua"
PLAIN = LIMITERS / "frame/plain_windows.lua"
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

    Before hit_once the script of gcra. Before fixed_window's step and hit_all what reads windows
    that INCREX counts.
    """
    text = path.read_text()
    if path == JOINT:
        steps = [
            f"do\n{(LIMITERS / f'{name}.lua').read_text()}\nsteps['{name}'] = step\nend\n"
            for name in STEPS
        ]
        plain = "local redis = plain_windows_of_hits(KEYS, ARGV)\n"
        return PLAIN.read_text() + "local steps = {}\n" + "".join(steps) + plain + text
    if path == ONCE:
        hit = limiter_script("gcra")
        return f"local function hit(KEYS, ARGV)\n{hit}\nend\n{text}"
    if path == LIMITERS / "fixed_window.lua":
        plain = "local redis = plain_windows_of_keys(KEYS, ARGV)\n"
        return PLAIN.read_text() + plain + text + FRAME.read_text()
    return text + FRAME.read_text() if "local function step(" in text else text


def limiter_script(algorithm: str) -> str:
    return script_text(LIMITERS / f"{SAME.get(algorithm, algorithm)}.lua")
