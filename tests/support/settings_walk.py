"""A walk through all settings that a server lists, each with values that are not its own.

Many are set at once, which takes a play instead of hundreds. If that play does not come out right,
each half of them is played, until a single setting is left.
"""

import random
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.support.settings_play import Play

_TIMEOUT = 20.0
_TIMEOUT_IF_REFUSED = 1.0
_HANGS_AFTER = 150.0


@dataclass(frozen=True)
class Setting:
    name: str
    value: Any

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


class Server(Protocol):
    """A private server, and what sets it for sessions to come."""

    def settings(self) -> dict[str, list[Any]]:
        """By name, the values to walk to."""

    def apply(self, settings: Iterable[Setting]) -> list[Setting]:
        """Those that the server takes."""

    def restore(self, settings: Iterable[Setting]) -> None: ...
    def make_play(self) -> Play: ...


@dataclass
class Report:
    taken: set[Setting] = field(default_factory=set)
    without_value: set[str] = field(default_factory=set)
    refused: dict[Setting, str] = field(default_factory=dict)
    wrong: dict[Setting, str] = field(default_factory=dict)
    plays: int = 0

    def __str__(self) -> str:
        names = {setting.name for setting in self.taken}
        refused = sorted({setting.name for setting in self.refused})
        return (
            f"{len(names)} variables, {len(self.taken)} values and {self.plays} plays; the server "
            f"took no value for {len(self.without_value)} more variables; refused: "
            f"{', '.join(refused) or 'nothing'}"
        )


class Walk:
    def __init__(
        self, server: Server, refused: Mapping[str, str], alone: Iterable[str] = ()
    ) -> None:
        """refused: those that are known to be. They are played alone, and so are others."""
        self._server = server
        self._refused = refused
        self._alone = {*refused, *alone}
        self.report = Report()

    def walk(self, *, together: int) -> Report:
        listed = self._server.settings()
        settings = [Setting(name, value) for name, values in listed.items() for value in values]
        for group in self._groups(settings, together):
            self._try(group)
        self.report.without_value = listed.keys() - {each.name for each in self.report.taken}
        return self.report

    def _groups(self, settings: Sequence[Setting], together: int) -> Iterator[list[Setting]]:
        """One value of each variable."""
        order = list(settings)
        random.Random(1).shuffle(order)
        groups: list[dict[str, Setting]] = []
        for setting in order:
            if setting.name in self._alone:
                yield [setting]
                continue
            for group in groups:
                if setting.name not in group and len(group) < together:
                    group[setting.name] = setting
                    break
            else:
                groups.append({setting.name: setting})
        for group in groups:
            yield list(group.values())

    def _try(self, group: list[Setting]) -> bool:
        """Whether all came out right."""
        expected = self._refused.get(group[0].name) if len(group) == 1 else None
        timeout = _TIMEOUT if expected is None else _TIMEOUT_IF_REFUSED
        play, applied, wrong = self._play(group, timeout)
        if expected and play.refusals and not re.search(expected, _said(play)):
            # A busy machine takes longer for a call than a refusal is waited for.
            play, applied, wrong = self._play(group, _TIMEOUT)
        if not wrong and not play.refusals:
            return True
        half = len(applied) // 2
        halves = [self._try(each) for each in (applied[:half], applied[half:]) if half > 0]
        if not all(halves):
            return False
        what = applied[0]
        if len(applied) > 1:  # They do it together.
            what = Setting(", ".join(map(str, applied)), "together")
        if wrong:
            self.report.wrong[what] = wrong
        else:
            self.report.refused[what] = _said(play)
        return False

    def _play(self, group: list[Setting], timeout: float) -> tuple[Play, list[Setting], str]:
        """The play, the settings that the server took, and what came out wrong."""
        play = self._server.make_play()
        applied = self._server.apply(group)
        self.report.taken |= set(applied)
        try:
            wrong = ""
            if applied:
                self.report.plays += 1
                wrong = _run(play, timeout)
        finally:
            self._server.restore(group)
        if wrong or play.refusals:
            wrong = wrong or _settle(play)  # Before other plays use the tables.
        return play, applied, wrong


def _said(play: Play) -> str:
    """The first refusal."""
    name, error = next(iter(play.refusals.items()))
    return f"{name}: {type(error).__name__}: {error}"


def _run(play: Play, timeout: float) -> str:
    """What is wrong, if anything is."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            play.play(timeout)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_HANGS_AFTER)
    if thread.is_alive():
        return f"it hangs for {_HANGS_AFTER} s"
    return str(errors[0]) if errors else ""


def _settle(play: Play) -> str:
    try:
        play.settle()
    except Exception as error:
        return f"afterwards: {type(error).__name__}: {error}"
    return ""


def check(
    report: Report,
    refused: Mapping[str, str],
    without_value: Iterable[str],
    sometimes: Iterable[str] = (),
) -> None:
    """refused: by variable, what the error says. without_value: patterns of names."""
    assert not report.wrong, "\n".join(f"{each}: {why}" for each, why in report.wrong.items())
    strange = {
        str(setting): said
        for setting, said in report.refused.items()
        if re.search(refused.get(setting.name, "(?!)"), said) is None
    }
    assert not strange, "\n".join(f"{each}: {said}" for each, said in strange.items())
    walked = {setting.name for setting in report.taken}
    right = (walked & refused.keys()) - {setting.name for setting in report.refused}
    right -= set(sometimes)
    assert not right, f"refused no more: {right}"
    unknown = {
        name
        for name in report.without_value
        if not any(re.fullmatch(pattern, name) for pattern in without_value)
    }
    assert not unknown, f"no value to walk to: {unknown}"
