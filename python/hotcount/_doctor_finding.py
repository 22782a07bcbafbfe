"""Features and findings: the shared parts of the checks of `hotcount doctor`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

FEATURES: dict[str, str] = {
    "counters": "Counter, PeriodCounter",
    "retry": "Counter(retry=)",
    "limiters": "Limiter",
    "sets": "LiveSets",
    "votes": "Votes in SQL alone, SlottedCounter",
    "cached": 'Votes(strategy="cached")',
    "write_behind": 'Votes(strategy="write_behind")',
    "views": "WriteBehindCounter",
}
IN_REDIS = ("counters", "retry", "limiters", "sets", "cached", "write_behind", "views")
IN_SQL = ("votes", "cached", "write_behind", "views")

State = Literal["ok", "warning", "unsafe", "unknown"]


@dataclass(frozen=True)
class Finding:
    """The result of one check. warning: losses that contract() names."""

    check: str
    state: State
    found: str
    unsafe_for: tuple[str, ...] = ()
    advice: str = ""

    def only_for(self, chosen: tuple[str, ...]) -> Finding | None:
        """The finding as far as it concerns these features."""
        concerned = tuple(each for each in self.unsafe_for if each in chosen)
        if self.unsafe_for and not concerned:
            return None
        return replace(self, unsafe_for=concerned)


def hosts_of(url: str) -> list[str]:
    """The hosts before the path, each with its port if it has one."""
    authority = re.split("[/?#]", url.partition("://")[2], maxsplit=1)[0]
    return authority.rpartition("@")[2].split(",")


def is_remote(url: str) -> bool:
    """Whether a host is another machine, so that the traffic crosses a network."""
    hosts = [re.sub(r":\d*$", "", each).strip("[]") for each in hosts_of(url)]
    local = ("", "localhost", "::1")
    return any(host not in local and not host.startswith(("127.", "/")) for host in hosts)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: (10, 11, 6) of 10.11.6-MariaDB."""
    parts = []
    for part in version.replace("-", ".").split("."):
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts)
