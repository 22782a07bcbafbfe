"""The Lua scripts as the core sends them."""

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hotcount

SOURCES = Path(__file__).parents[2] / "cpp/src"
LIMITERS = SOURCES / "limiter/lua"
FRAME = LIMITERS / "frame/hit_keys.lua"
JOINT = LIMITERS / "frame/hit_all.lua"
ONCE = LIMITERS / "frame/hit_once.lua"
NAMES = LIMITERS / "frame/names.lua"
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

    Before hit_once the script of gcra. A limiter's script stands behind the names that it uses.
    """
    names = NAMES.read_text() if LIMITERS in path.parents else ""
    return names + _without_names(path)


def _without_names(path: Path) -> str:
    text = path.read_text()
    if path == JOINT:
        steps = [
            f"do\n{(LIMITERS / f'{name}.lua').read_text()}\nsteps['{name}'] = step\nend\n"
            for name in STEPS
        ]
        return "local steps = {}\n" + "".join(steps) + text
    if path == ONCE:
        hit = _without_names(LIMITERS / "gcra.lua")
        return f"local function hit(KEYS, ARGV)\n{hit}\nend\n{text}"
    return text + FRAME.read_text() if "local function step(" in text else text


def limiter_script(algorithm: str) -> str:
    return script_text(LIMITERS / f"{SAME.get(algorithm, algorithm)}.lua")


# In one script the server's clock stands still, so that no state expires while ours goes on.
_RUN = """
local function run(KEYS, ARGV)
%s
end
local answers = {}
for i = %d, #ARGV, 3 do
    local hit = {unpack(ARGV, 1, %d)}
    hit[1], hit[2] = ARGV[i], ARGV[i + 1]
    for word in string.gmatch(ARGV[i + 2], '%%S+') do hit[#hit + 1] = word end
    answers[#answers + 1] = run(KEYS, hit)[1]
end
return answers
"""


def answers_of(
    redis: hotcount.Redis, case: dict[str, Any], calls: Iterable[tuple[int, str, Any]]
) -> list[list[list[int]]]:
    """The script's answers to calls of one key, for each of its rates.

    A call is when, the mode ("1" is a hit), and its arguments with spaces between: a hit's cost.
    """
    charges = 2 if case.get("ahead") else int(case["charge_denied"])
    shared = ["", "", charges, *case["script"]]
    words = [word for call in calls for word in call]
    script = _RUN % (limiter_script(case["algorithm"]), len(shared) + 1, len(shared))
    replies = redis.execute("EVAL", script, 1, uuid.uuid4().hex, *shared, *words)
    return [[reply[part : part + 4] for part in range(0, len(reply), 4)] for reply in replies]
