"""The cost of a limit in a web application: hotcount beside limiters of FastAPI, Flask and Django.

    make web-limits
    .venv/bin/python -m loadtest.peers.web_limits --only flask --rounds 3 --seconds 3

FastAPI runs under uvicorn, Flask and Django under gunicorn with threads, each in one process; the
limits are in a private Redis; wrk sends the requests over loopback. In each round every contender
starts anew, in changing order, and gets two loads:

    one connection       p50 and p99: nothing waits for something else
    eight connections    requests a second: the process is busy all the time

"server us" is the time that the web server's process was on a processor for each request of both
loads: what other programs on the machine disturb least. "adds" is a contender's figure less that of
the application without a limiter in the same round. Every request is admitted, and a load fails if
Redis has got fewer commands than there were answers. Markdown on stdout: median (least .. most) of
the rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from typing import Any

import hotcount

from loadtest.peers import report
from loadtest.peers.http_votes import find_wrk, processor_seconds, served, wrk
from loadtest.peers.limited_apps import BARE, WITH_HEADERS
from loadtest.peers.options import keep, parse, parser_for
from loadtest.peers.private_servers import start_redis
from loadtest.peers.rounds import (
    OURS,
    P99,
    RATE,
    SERVER_US,
    TIMEOUT_S,
    Case,
    Failed,
    Load,
    LostAdds,
    Measured,
    run_rounds,
)
from tests.support.servers import RedisServer, free_port

P50 = "p50 us"
BUSY = 8
WARM_UP_S = 1
APPS = "loadtest.peers.limited_apps"
GUNICORN = ("-m", "gunicorn", "--no-control-socket", "--worker-class", "gthread", "--threads", "8")
PEERS = {
    "fastapi": ("slowapi", f"slowapi{WITH_HEADERS}", "fastapi-limiter"),
    "flask": ("Flask-Limiter", f"Flask-Limiter{WITH_HEADERS}"),
    "django": ("django-ratelimit",),
}
LIBRARIES = {
    "fastapi": ("fastapi", "uvicorn", "slowapi", "fastapi-limiter", "pyrate-limiter"),
    "flask": ("Flask", "gunicorn", "Flask-Limiter"),
    "django": ("Django", "gunicorn", "django-ratelimit"),
}
ADDED = (SERVER_US, P50, P99)


def command(framework: str, port: int) -> list[str]:
    if framework == "fastapi":
        options = ("--factory", "--no-access-log", "--log-level", "warning", "--port", str(port))
        return ["-m", "uvicorn", *options, f"{APPS}:fastapi_app"]
    return [*GUNICORN, "--bind", f"127.0.0.1:{port}", f"{APPS}:{framework}_app()"]


def load(redis: RedisServer, framework: str, way: str, seconds: float, seed: int) -> Measured:
    port = free_port()
    app = {"LIMITED_APP_URL": f"redis://127.0.0.1:{redis.port}", "LIMITED_APP_WAY": way}
    with served([sys.executable, *command(framework, port)], port, app) as process:
        wrk(port, BUSY, WARM_UP_S, seed)
        with redis.redis(timeout=TIMEOUT_S) as store:
            store.execute("CONFIG", "RESETSTAT")
        before = processor_seconds(process)
        alone, busy = wrk(port, 1, seconds, seed), wrk(port, BUSY, seconds, seed)
        used = processor_seconds(process) - before
    answered = int(alone["requests"] + busy["requests"])
    if not alone["requests"] or not busy["requests"]:
        raise Failed(f"no request was answered in {seconds} s")
    return Measured(
        0 if way == BARE else answered,
        {
            RATE: 1e6 * busy["requests"] / busy["us"],
            SERVER_US: 1e6 * used / answered,
            P50: alone["p50_us"],
            P99: alone["p99_us"],
        },
    )


def check(redis: RedisServer, case: Case, measured: Measured) -> None:
    """Raises LostAdds if Redis has got fewer commands than there were answers."""
    with redis.redis(timeout=TIMEOUT_S) as store:
        told = store.execute("INFO", "stats").decode()
        commands = int(told.partition("total_commands_processed:")[2].split()[0])
        store.execute("FLUSHALL")
    if commands < measured.added:
        raise LostAdds(f"{measured.added} answers, and Redis has got {commands} commands")


def added(case: Case, metric: str) -> dict[str, dict[str, float]]:
    """By contender: its figure less that of the application without a limiter, within a round."""
    bare = case.figures[BARE][metric]
    return {
        way: report.spread([one - base for one, base in zip(figures[metric], bare)])
        for way, figures in case.figures.items()
        if way != BARE
    }


def summary(case: Case) -> dict[str, Any]:
    return {**report.summary(case), "added": {each: added(case, each) for each in ADDED}}


HEAD = (
    *("framework", "limiter", "requests/s", "hotcount's / its"),
    *(cell for metric in ADDED for cell in (metric, "adds")),
)


def table(cases: list[dict[str, Any]]) -> str:
    lines = [HEAD, ("---",) * len(HEAD)]
    for case in cases:
        ratios = {one["peer"]: one["ratio"] for one in case["ratios"] if one["metric"] == RATE}
        for way, figures in case["figures"].items():
            cells = [report.ranged(figures[RATE], report.number)]
            cells.append(report.ranged(ratios[way], report.decimal) if way in ratios else "")
            for metric in ADDED:
                more = case["added"][metric].get(way)
                cells.append(report.ranged(figures[metric], report.number))
                cells.append("" if more is None else report.ranged(more, report.number))
            lines.append((case["case"], way, *cells))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main(words: list[str] | None = None) -> int:
    description = (__doc__ or "").partition("\n")[0]
    short = ("--rounds", "3", "--seconds", "3")
    parser = parser_for("web_limits", description, list(PEERS), rounds=7, seconds=10, short=short)
    chosen = parse(parser, words)
    find_wrk()
    with ExitStack() as stack:
        redis = start_redis(stack, port=free_port())
        cases = [
            Case(
                framework,
                "web",
                [
                    Load(way, partial(load, redis, framework, way))
                    for way in (OURS, *PEERS[framework], BARE)
                ],
            )
            for framework in chosen.only
        ]
        checked: Callable[[Case, Measured], None] = partial(check, redis)
        run_rounds(cases, chosen.rounds, chosen.seconds, checked)
    libraries = dict.fromkeys(["redis", *(one for each in chosen.only for one in LIBRARIES[each])])
    document = {
        "rounds": chosen.rounds,
        "seconds": chosen.seconds,
        "versions": {"hotcount": hotcount.__version__, **{one: version(one) for one in libraries}},
        "cases": [summary(case) for case in cases],
    }
    keep(chosen, document)
    named = ", ".join(f"{name} {number}" for name, number in document["versions"].items())
    print(f"{chosen.rounds} rounds of {chosen.seconds:g} s. {named}.\n\n{table(document['cases'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
