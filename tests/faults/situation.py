"""What a situation of a Lua script is, and the data that several have: script_situations.py."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.support.scripts import JOINT, ONCE

# counter/lua/add_once.lua is "add_once", zset/lua/upsert.lua is "zset_upsert".
SCRIPTS = {
    path.stem if path.parts[-3] == "counter" else f"{path.parts[-3]}_{path.stem}": path
    for path in (Path(__file__).parents[2] / "cpp/src").glob("*/lua/*.lua")
}
SCRIPTS["limiter_hit_all"] = JOINT
SCRIPTS["limiter_hit_once"] = ONCE
LARGE = str(2**60)
SOON = "600000"
FAR = str(4102444800)  # 2100


@dataclass
class Situation:
    name: str
    keys: list[str]
    arguments: list[str]
    before: list[list[str]] = field(default_factory=list)

    @property
    def script(self) -> str:
        return self.name.split("/")[0]


def set_of(key: str, *members: str, ttl: str = SOON) -> list[list[str]]:
    pairs = [word for i, member in enumerate(members) for word in (str(i), member)]
    return [["ZADD", key, *pairs], ["PEXPIRE", key, ttl]]


def log_of(key: str, *entries: str, ttl: str | None = SOON) -> list[list[str]]:
    return [["RPUSH", key, *entries], *([["PEXPIRE", key, ttl]] if ttl else [])]


def hash_of(key: str, *pairs: str, ttl: str | None = SOON) -> list[list[str]]:
    return [["HSET", key, *pairs], *([["PEXPIRE", key, ttl]] if ttl else [])]


def cached(key: str, **other: str) -> list[str]:
    fields = {
        "value": "5",
        "gen": "1",
        "version": "3",
        "saved_version": "1",
        "epoch": "2",
        "token": "t",
        "expires_at": "1000",
        **other,
    }
    return ["HSET", key, *(word for pair in fields.items() for word in pair)]
