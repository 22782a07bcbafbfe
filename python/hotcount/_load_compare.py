"""`hotcount load compare` and `diff`: which differences are significant, and which are noise."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hotcount._load_statistics import (
    LEAST_ROUNDS,
    call_differences,
    least_rounds,
    median_interval,
    paired_ratio,
    spread_of,
    unpaired_ratio,
)
from hotcount._report_numbers import number, table, whole
from hotcount.errors import ConfigError
from hotcount.report import SCHEMA

Document = dict[str, Any]
Figure = Callable[[Document], float]

COMPARISON, RUN = "compare.json", "run.json"
# kColumns and kLongestBar of loadtest/src/report.
COLUMNS, LONGEST_BAR = 100, 24
AUDITED = ("lost", "double")


def throughput(mix: dict[str, float]) -> str:
    """The throughput figure of a comparison: writes, or reads if the load writes nothing."""
    return "writes_per_s" if mix["vote"] > 0 else "reads_per_s"


def latency(settings: Document) -> str:
    """The latency figure: response time in an open loop, service time in a closed loop."""
    return "service_us" if settings["rate_per_s"] is None else "response_us"


# -- one comparison -------------------------------------------------------------------------------


def with_statistics(document: Document) -> Document:
    """Adds to a comparison the intervals of its medians and ratios, and which differences could be
    shown. A comparison that has them stays unchanged."""
    for part in document["parts"]:
        contenders = [*part["strategies"], *part.get("references", [])]
        if not all("interval" in each["writes_per_s"] for each in contenders):
            _add_statistics(part, contenders)
    return document


def _add_statistics(part: Document, contenders: list[Document]) -> None:
    settings = part["settings"]
    seed, rate = settings["seed"], throughput(settings["mix"])
    for each in contenders:
        _add_intervals(each, seed)

    def first(of: str, name: str) -> Document | None:
        return next((each for each in contenders if each[of] == name), None)

    base = first("strategy", part["baseline"])
    _compare(contenders, base, "ratio_to_baseline", lambda trial: trial[rate], seed)
    is_open = settings["rate_per_s"] is not None
    _compare(
        contenders,
        base if is_open else None,
        "p99_ratio_to_baseline",
        lambda trial: trial["response_us"]["p99"],
        seed,
    )
    best = first("role", "best")
    _compare(contenders, best, "ratio_to_best", lambda trial: trial[rate], seed)


def _by_round(contender: Document, figure: Figure) -> list[float]:
    return [float(figure(trial["result"])) for trial in contender["trials"]]


def _add_intervals(contender: Document, seed: int) -> None:
    def add(spread: Document, *path: str) -> None:
        values = []
        for trial in contender["trials"]:
            found = trial["result"]
            for name in path:
                found = found[name]
            values.append(float(found))
        ends = median_interval(values, seed)
        spread["interval"] = list(ends) if ends else None

    for name in ("writes_per_s", "reads_per_s"):
        add(contender[name], name)
    for times in ("response_us", "service_us"):
        for name in ("p50", "p99"):
            if by_round := contender.get(times, {}).get(f"{name}_by_round"):
                add(by_round, times, name)


def _compare(
    contenders: list[Document], base: Document | None, name: str, figure: Figure, seed: int
) -> None:
    """Adds each contender's ratio to `base`; the tests of the named strategies are one table."""
    if base is None:
        for each in contenders:
            each[name]["difference"] = each[name]["interval"] = None
        return
    to = _by_round(base, figure)
    named = []
    noise = None
    for each in contenders:
        # The document's own median, min and max stay: hotcount-load has printed them.
        ratio = each[name] = {**paired_ratio(_by_round(each, figure), to, seed), **each[name]}
        if each is base:
            continue
        if each["role"] == "control":
            call_differences([ratio], None)
            noise = ratio["interval"]
        elif each["role"] == "named":
            named.append(ratio)
    call_differences(named, None if base["role"] == "best" else noise)


def _with_interval(spread: Document, text: Callable[[float], str]) -> tuple[str, str]:
    ends = spread.get("interval") or (spread["min"], spread["max"])
    if not spread["max"]:
        return "-", "-"
    return text(spread["median"]), f"{text(ends[0])} .. {text(ends[1])}"


def _called(ratio: Document) -> str:
    """The ratio with ~ where no difference could be shown."""
    noise = ratio["interval"] and ratio["difference"] is False
    return f"{number(ratio['median'])}{' ~' if noise else ''}" if ratio["max"] else "-"


def compare_text(document: Document, wide: bool = False) -> str:
    """The table of hotcount-load with the interval of each ratio; `wide`: all intervals, and p."""
    return "\n".join(_part_text(part, wide) for part in document["parts"])


def _name_of_ratio(part: Document) -> str:
    is_open = part["settings"]["rate_per_s"] is not None
    return "p99_ratio_to_baseline" if is_open else "ratio_to_baseline"


def _heads(part: Document) -> tuple[str, str, str]:
    """The column heads of the rate, the ratio and the intervals."""
    rate = throughput(part["settings"]["mix"]).replace("_per_s", "/s")
    of_p99 = "p99 " if part["settings"]["rate_per_s"] is not None else ""
    ends = "95 %" if part["rounds"] >= LEAST_ROUNDS else "min .. max"
    return rate, f"{of_p99}x {part['baseline']}", ends


def _p99_of(contender: Document, settings: Document) -> Document:
    none = {"median": 0, "min": 0, "max": 0}
    return contender[latency(settings)].get("p99_by_round") or none


def _narrow_table(part: Document, contenders: list[Document]) -> str:
    settings = part["settings"]
    rate, ratio, ends = _heads(part)
    rates = [each[throughput(settings["mix"])]["median"] for each in contenders]
    most = max(rates) or 1

    def with_bars(length: int) -> str:
        head = ["strategy", f"{rate:>9} {' ' * length}", ratio, ends, "p99", "lost", "doubled",
                "verdict"]  # fmt: skip
        rows = []
        for each, value in zip(contenders, rates):
            bar = "#" * round(value / most * length)
            found = each["audit"] or {}
            p99 = _with_interval(_p99_of(each, settings), lambda us: f"{number(us / 1000)} ms")[0]
            rows.append(
                [
                    each["strategy"],
                    f"{whole(value):>9} {bar:<{length}}",
                    _called(each[_name_of_ratio(part)]),
                    _with_interval(each[_name_of_ratio(part)], number)[1],
                    p99,
                    *("-" if (n := found.get(name)) is None else whole(n) for name in AUDITED),
                    each["verdict"],
                ]
            )
        return table(head, rows)

    width = max(map(len, with_bars(0).splitlines()))
    return with_bars(max(0, min(LONGEST_BAR, COLUMNS - width)))


def _wide_table(part: Document, contenders: list[Document]) -> str:
    settings = part["settings"]
    rate, of_ratio, ends = _heads(part)
    head = ["strategy", rate, ends, of_ratio, ends, "p (Holm)", "p50 ms", "p99 ms", ends,
            "verdict"]  # fmt: skip
    rows = []
    for each in contenders:
        ratio, p99 = each[_name_of_ratio(part)], _p99_of(each, settings)
        p50 = each[latency(settings)].get("p50_by_round") or p99
        rows.append(
            [
                each["strategy"],
                *_with_interval(each[throughput(settings["mix"])], whole),
                _called(ratio),
                _with_interval(ratio, number)[1],
                "-" if ratio["difference"] is None else number(ratio["p_adjusted"]),
                _with_interval(p50, lambda us: number(us / 1000))[0],
                *_with_interval(p99, lambda us: number(us / 1000)),
                each["verdict"],
            ]
        )
    return table(head, rows)


def _wrapped(line: str) -> str:
    indent = len(line) - len(line.lstrip())
    return textwrap.fill(
        line, COLUMNS, subsequent_indent=" " * (indent + 2),
        break_long_words=False, break_on_hyphens=False, drop_whitespace=True,
    )  # fmt: skip


def _part_text(part: Document, wide: bool) -> str:
    settings, rounds = part["settings"], part["rounds"]
    contenders = [each for each in [*part["strategies"], *part["references"]] if each["trials"]]
    is_open = settings["rate_per_s"] is not None
    if not contenders:
        return f"The load {part['name']}: not run\n"
    load = f"open loop, {number(settings['rate_per_s'])}/s" if is_open else "closed loop"
    place = " and ".join(dict.fromkeys(each["place"] for each in contenders))
    title = (f"{settings['workload']} on {place}, {load}, {settings['workers']} callers, "
             f"{rounds} round{'s' * (rounds != 1)}")  # fmt: skip
    lines = []
    tests = len(part["strategies"]) - 1
    needed = least_rounds(tests)
    if tests and rounds < needed:
        lines.append(
            f"  {rounds} round{'s' * (rounds != 1)}: no difference can be called; that takes "
            f"{needed} or more."
        )
    elif tests:
        lines.append("  ~: no difference could be shown (signed rank test at 5 % over the table).")
    lines.append(f"  {'p50 and p99 are medians' if wide else 'p99 is the median'} of those of the "
                 "rounds.")  # fmt: skip
    best = next((each for each in contenders if each["role"] == "best"), None)
    if best and not is_open and best["ratio_to_baseline"]["median"] > 1:
        lines += [
            f"  {each['strategy']}: {_called(each['ratio_to_best'])} times {best['strategy']}"
            for each in contenders
            if each["role"] == "named" and each["strategy"] != part["baseline"]
        ]
    lines += [f"  {each['strategy']}: {why}" for each in contenders for why in each["reasons"]]
    lines += [f"  {note}" for note in part["notes"]]
    shown = _wide_table(part, contenders) if wide else _narrow_table(part, contenders)
    if not wide:
        title, lines = _wrapped(title), [_wrapped(line) for line in lines]
    return "\n".join([title, "", shown, *lines]) + "\n"


# -- two folders ----------------------------------------------------------------------------------

SEED = 1
FIGURES = ("per_s", "p50_us", "p99_us")
# Settings that may differ without a note: the place of a run, and the prefix of its keys.
PLACES = {"database_url", "redis_url", "key_prefix"}


def _rounds(
    settings: Document, strategy: str, results: Iterable[Document], part: str = "",
    contenders: tuple[str, ...] = (),
) -> Document:  # fmt: skip
    """A strategy of a folder, by round."""
    times, rate = latency(settings), throughput(settings["mix"])
    results = list(results)
    return {
        "part": part,
        "strategy": strategy,
        "settings": settings,
        "contenders": contenders,
        "per_s": [float(each[rate]) for each in results],
        "p50_us": [float(each[times]["p50"]) for each in results],
        "p99_us": [float(each[times]["p99"]) for each in results],
    }


def _of_comparison(document: Document) -> list[Document]:
    found = []
    for part in document["parts"]:
        strategies = [*part["strategies"], *part.get("references", [])]
        names = tuple(each["strategy"] for each in strategies)
        found += [
            _rounds(
                part["settings"], each["strategy"], (one["result"] for one in each["trials"]),
                part["name"], names,
            )
            for each in strategies
        ]  # fmt: skip
    return found


def _read(folder: Path) -> tuple[Document, list[Document]]:
    """The document of a folder, and its strategies."""
    comparison = (folder / COMPARISON).exists()
    file = folder / (COMPARISON if comparison else RUN)
    if not file.exists():
        raise ConfigError(
            f"{folder}: neither {COMPARISON} nor {RUN} is in it; --out of run or compare "
            "makes such a folder"
        )
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ConfigError(
                f"{folder}: its schema is '{document['schema']}', this program knows '{SCHEMA}'"
            )
        if not comparison and "result" not in document:
            raise ConfigError(f"{folder}: its run has no figures: it was killed, or goes on")
        settings = document.get("settings", {})
        strategies = (
            _of_comparison(document)
            if comparison
            else [_rounds(settings, settings["strategy"], [document["result"]])]
        )
        side = {name: document[name] for name in ("kind", "started", "conclusion")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder}: {error!r}") from None
    return {"folder": str(folder), **side}, strategies


def _same(a: Document, b: Document) -> bool:
    """Two runs are compared whatever their strategies; else names must agree."""
    if not a["part"] and not b["part"]:
        return True
    parts = a["part"] == b["part"] or not a["part"] or not b["part"]
    return bool(a["strategy"] == b["strategy"] and parts)


def _are_blocks(a: Document, b: Document) -> bool:
    """Rounds are paired if both are comparisons of the same contenders, in the same drawn order, in
    as many rounds; else their medians are compared."""
    return bool(
        a["part"]
        and a["contenders"] == b["contenders"]
        and len(a["per_s"]) == len(b["per_s"])
        and a["settings"]["seed"] == b["settings"]["seed"]
    )


def _differing(a: Document, b: Document) -> list[str]:
    return [
        f"{a['part']}{': ' if a['part'] else ''}{name} "
        f"{json.dumps(value)} and {json.dumps(b['settings'][name])}"
        for name, value in sorted(a["settings"].items())
        if name not in PLACES and b["settings"].get(name, value) != value
    ]


def _row(a: Document, b: Document) -> Document:
    paired = _are_blocks(a, b)
    ratio = paired_ratio if paired else unpaired_ratio
    both = dict.fromkeys((a["strategy"], b["strategy"]))
    row: Document = {
        "part": a["part"],
        "strategy": ", ".join(both),
        "paired": paired,
        # The rate of an open loop is a setting, not a result.
        "open": any(each["settings"]["rate_per_s"] is not None for each in (a, b)),
        "rounds_a": len(a["per_s"]),
        "rounds_b": len(b["per_s"]),
    }
    for name in FIGURES:
        row[name] = {
            "a": spread_of(a[name])["median"],
            "b": spread_of(b[name])["median"],
            "ratio": ratio(b[name], a[name], SEED),
        }
    return row


def diff(a: Path, b: Path) -> Document:
    """Compares two folders of runs or comparisons: which differences are significant.

    ConfigError if one of them has no result, or if they have no strategy in common.
    """
    side_a, of_a = _read(a)
    side_b, of_b = _read(b)
    rows: list[Document] = []
    settings: list[str] = []
    missing: list[str] = []
    met = []
    for first in of_a:
        second = next((each for each in of_b if _same(first, each)), None)
        if second is None:
            missing.append(f"{first['strategy']} in A alone")
            continue
        met.append(id(second))
        rows.append(_row(first, second))
        settings += [line for line in _differing(first, second) if line not in settings]
    missing += [f"{each['strategy']} in B alone" for each in of_b if id(each) not in met]
    if not rows:
        raise ConfigError(f"{a} and {b} have no strategy in common: {', '.join(missing)}")
    for name in FIGURES:
        call_differences([row[name]["ratio"] for row in rows], None)
    paired = all(row["paired"] for row in rows)
    return {
        "schema": SCHEMA,
        "kind": "diff",
        "a": side_a,
        "b": side_b,
        "settings": settings,
        "missing": missing,
        "rounds_needed": least_rounds(len(rows)) if paired else LEAST_ROUNDS,
        "rows": rows,
        "conclusion": "passed",
        "exit_code": 0,
    }


def _sentences(rows: list[Document]) -> str:
    """How each strategy in B differs from A; which differences could not be shown."""
    shown = []
    same: dict[str, list[str]] = {"the rate": [], "p99": []}
    for row in rows:
        name = row["strategy"]
        ratio = row["p99_us" if row["open"] else "per_s"]["ratio"]
        times = number(ratio["median"])
        if not ratio["difference"]:
            same["p99" if row["open"] else "the rate"].append(name)
        elif row["open"]:
            shown.append(f"{name} has {times} times the p99")
        else:
            shown.append(f"{name} makes {times} times as many a second")
    text = f"In B {', '.join(shown)}.\n" if shown else ""
    for what, names in same.items():
        if names:
            text += f"No difference in {what} could be shown: {', '.join(names)}.\n"
    return text


def diff_text(document: Document) -> str:
    lines = [
        f"{name.upper()}: {side['folder']} ({side['kind']}, {side['started']}, "
        f"{side['conclusion']})"
        for name, side in (("a", document["a"]), ("b", document["b"]))
    ]
    lines += [f"  they differ in {setting}" for setting in document["settings"]]
    head = ["strategy", "rounds", "A /s", "B /s", "B / A", "95 %", "p50 B / A", "95 %",
            "p99 B / A", "95 %"]  # fmt: skip
    cells = []
    for row in document["rows"]:
        line = [
            f"{row['part']} {row['strategy']}".strip(),
            f"{row['rounds_a']} paired" if row["paired"] else
            f"{row['rounds_a']} and {row['rounds_b']}",
            number(row["per_s"]["a"]),
            number(row["per_s"]["b"]),
        ]  # fmt: skip
        for name in FIGURES:
            ratio = row[name]["ratio"]
            ends = ratio["interval"]
            line += [
                f"{number(ratio['median'])}{'' if ratio['difference'] else ' ~'}",
                f"{number(ends[0])} .. {number(ends[1])}" if ends else "-",
            ]
        cells.append(line)
    lines += ["", table(head, cells), "  ~: no difference could be shown (5 % over each column)"]
    fewest = min(min(row["rounds_a"], row["rounds_b"]) for row in document["rows"])
    if fewest < document["rounds_needed"]:
        lines.append(
            f"  {fewest} round{'s' * (fewest != 1)}: no difference can be called; that takes "
            f"{document['rounds_needed']} or more."
        )
    lines += [f"  {name}" for name in document["missing"]]
    return "\n".join(lines) + "\n\n" + _sentences(document["rows"])
