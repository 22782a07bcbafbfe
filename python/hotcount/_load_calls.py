"""``hotcount.load.run`` and ``compare``: hotcount-load from Python, its figures as a DataFrame."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotcount._load_trials import program
from hotcount.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    import pandas

Document = dict[str, Any]
BAD_USAGE = 2
# Options of hotcount-load that shape its own output; the calls here return a DataFrame.
OUTPUT_OPTIONS = ("json", "wide", "each", "help", "progress")


def run(
    strategy: str = "batched",
    *,
    duration: float | str = "10s",
    rate: float | None = None,
    threshold: str | Iterable[str] = (),
    out: str | Path | None = None,
    **options: Any,
) -> pandas.DataFrame:
    """Runs one strategy under one load and audits it: ``hotcount-load run``.

    Args:
        strategy: a name of ``hotcount-load run --help``, such as ``"naive"`` or ``"redis/cached"``.
        duration: length of the load after its warm-up, in seconds or as ``"500ms"``; default 10 s.
        rate: operations per second of an open loop: votes, votes taken back and reads together.
            None: a closed loop, in which each of ``workers`` callers waits for its answer.
        threshold: bounds such as ``"p99<50ms"`` or ``["lost==0", "rate>=1000"]``. One that does
            not hold makes the verdict ``missed``.
        out: a new or empty folder that keeps the run for ``hotcount.report.read`` and for
            ``hotcount-load audit``. None: nothing is kept.
        **options: every other option of ``hotcount-load run --help``, with ``_`` for ``-``:
            ``managed="postgres"``, ``item_table="post"``, ``bystander=True``. A list is joined by
            commas. False and None leave an option out.

    Returns:
        A DataFrame with one row. The column ``verdict`` is ``passed``, ``allowed`` (the audit found
        what the strategy's contract allows), ``broken``, ``missed``, ``overloaded`` or
        ``inconclusive``; ``reasons`` says why. A verdict raises nothing.

    Raises:
        ConfigError: an option is wrong, pandas is missing, or hotcount-load is not installed.
        UnavailableError: nothing was measured, because a server could not be reached or started.

    Example:
        >>> from hotcount import load  # doctest: +SKIP
        >>> load.run("batched", rate=500, duration=2)[["p99_ms", "verdict"]]  # doctest: +SKIP
    """
    more = {"rate": rate, "threshold": threshold, "duration": duration, "out": out}
    return _frame(_measured("run", {"strategies": strategy, **more, **options}))


def compare(
    strategies: str | Iterable[str],
    *,
    rounds: int = 8,
    duration: float | str = "1s",
    out: str | Path | None = None,
    **options: Any,
) -> pandas.DataFrame:
    """Runs strategies side by side, in alternating rounds, and audits each: ``hotcount-load
    compare``.

    Args:
        strategies: names, as a list or joined by commas. The first is the baseline unless
            ``baseline=`` names another.
        rounds: rounds of each strategy; a ratio is taken within a round. ``hotcount load compare``
            needs 6 or more to say which differences are noise.
        duration: length of each load, in seconds or as ``"500ms"``; default 1 s.
        out: as in ``run``.
        **options: every other option of ``hotcount-load compare --help``, written as in ``run``.

    Returns:
        A DataFrame with a row for each strategy of each part. ``ratio`` is the median ratio to the
        baseline: of the rate, or with an open loop of the p99. ``reference`` marks the rows of the
        baseline's further runs (``naive/again``, ``naive@4``).

    Raises:
        ConfigError: as ``run``.
        UnavailableError: as ``run``.

    Example:
        >>> load.compare(["naive", "batched"], rounds=2)[["strategy", "ratio"]]  # doctest: +SKIP
    """
    more = {"rounds": rounds, "duration": duration, "out": out}
    return _frame(_measured("compare", {"strategies": strategies, **more, **options}))


def _words(options: dict[str, Any]) -> list[str]:
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
            continue
        listed = isinstance(value, Iterable) and not isinstance(value, str)
        text = ",".join(map(str, value)) if listed else str(value)
        if text:
            words.append(f"{option}={text}")
        elif name != "threshold":
            # hotcount-load would read the next option as the value.
            raise ConfigError(f"{option} is empty: give a value, or leave it out")
    return words


def _measured(command: str, options: dict[str, Any]) -> Document:
    if importlib.util.find_spec("pandas") is None:
        raise ConfigError(f"load.{command} needs pandas: pip install pandas")
    if unusable := [name for name in OUTPUT_OPTIONS if options.pop(name, None) is not None]:
        raise ConfigError(f"load.{command} returns a DataFrame: leave out {', '.join(unusable)}")
    words = [program(), command, "--progress=none", *_words(options), "--json"]
    # In its own process group: else a Ctrl-C reaches it from the terminal and from the code below,
    # and the second SIGINT kills it.
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate()
    except BaseException:
        # On SIGINT hotcount-load ends the load, audits it, and removes its keys and tables.
        process.send_signal(signal.SIGINT)
        process.communicate()
        raise
    if out:
        document: Document = json.loads(out)
        return document
    why = errors.strip().removeprefix("hotcount-load: ")
    if process.returncode == BAD_USAGE:
        raise ConfigError(why)
    raise UnavailableError(why or f"hotcount-load exited with {process.returncode}, without output")


def _frame(document: Document) -> pandas.DataFrame:
    import pandas

    if document["kind"] == "run":
        return pandas.DataFrame([_run_row(document)])
    return pandas.DataFrame(
        [
            _compared_row(part, found, part["settings"]["rate_per_s"] is not None)
            for part in document["parts"]
            for found in [*part["strategies"], *part["references"]]
        ]
    )


def _audited(audit: Document | None) -> Document:
    known = audit or {}
    stale = known.get("reads", {}).get("staleness_ms", {})
    return {
        "lost": known.get("lost"),
        "doubled": known.get("double"),
        "ghost": known.get("ghost"),
        "stale_p99_ms": stale.get("p99"),
    }


def _times(found: Document, *, is_open: bool) -> Document:
    times = found["response_us" if is_open else "service_us"]
    return {f"{name}_ms": times[name] / 1000 for name in ("p50", "p99")}


def _run_row(document: Document) -> Document:
    result, audit = document["result"], document["audit"]
    is_open = "offered" in result
    done = result["operations"]
    unserved = result["offered"]["censored"] if is_open else 0
    return {
        "strategy": document["settings"]["strategy"],
        "writes_per_s": result["writes_per_s"],
        "reads_per_s": result["reads_per_s"],
        **_times(result, is_open=is_open),
        **_audited(audit),
        "without_success": done["failed"] + done["unknown"] + unserved,
        "verdict": document["verdict"],
        "reasons": "; ".join(document["reasons"]),
    }


def _compared_row(part: Document, found: Document, is_open: bool) -> Document:
    ratio = found["p99_ratio_to_baseline" if is_open else "ratio_to_baseline"]
    audit = found["audit"] if all(trial["audit"] for trial in found["trials"]) else None
    rate = found["writes_per_s"]
    return {
        "part": part["name"],
        "database": part["database"] or "",
        "strategy": found["strategy"],
        "reference": found["role"] != "named",
        "rounds": len(found["trials"]),
        "writes_per_s": rate["median"],
        "writes_per_s_min": rate["min"],
        "writes_per_s_max": rate["max"],
        "reads_per_s": found["reads_per_s"]["median"],
        "ratio": ratio["median"] if ratio["max"] else None,
        "ratio_min": ratio["min"] if ratio["max"] else None,
        "ratio_max": ratio["max"] or None,
        **_times(found, is_open=is_open),
        **_audited(audit),
        "without_success": found["failed"] + found["unknown"] + found["censored"],
        "verdict": found["verdict"],
        "reasons": "; ".join(found["reasons"]),
    }
