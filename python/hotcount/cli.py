"""The ``hotcount`` command.

Results go to stdout (as JSON with ``--json``), progress to stderr. Exit codes, everywhere: 0 done,
1 a check failed, 2 bad usage, 3 inconclusive (what was asked for could not be tried here).
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import hotcount
from hotcount import _demo, _doctor, _keys, _ready, _reconcile, _schema, report
from hotcount._keys import printable
from hotcount._sync import fold_counts, open_views, save_counts

DONE, CHECK_FAILED, BAD_USAGE, INCONCLUSIVE = range(4)

STRATEGIES = ("naive", "slotted", "batched")
ALL_STRATEGIES = (*STRATEGIES, "cached", "write_behind")
# Strategies whose workers save a cache to the database.
IN_CACHE = ("cached", "write_behind")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- sweep ------------------------------------------------------------------


def sweep(options: argparse.Namespace) -> int:
    with hotcount.LiveSets(options.url) as sets:
        report = sets.sweep(options.match, dry_run=not options.delete)
    keys = [printable(key) for key in report.keys]
    if options.json:
        print(
            json.dumps(
                {
                    "match": options.match,
                    "dry_run": not options.delete,
                    "scanned": report.scanned,
                    "found": report.found,
                    "deleted": report.deleted,
                    "keys": keys,
                },
                indent=2,
            )
        )
    else:
        for key in keys:
            print(key)
        if report.found > len(keys):
            print(f"... and {report.found - len(keys):,} more")
        print(
            f"{report.scanned:,} sorted sets match, {report.found:,} of them without a TTL, "
            f"{report.deleted:,} deleted"
        )
    if report.found and not options.delete:
        say("hotcount sweep: nothing was deleted; --delete does that")
    return DONE


# -- sync -------------------------------------------------------------------


def sync(options: argparse.Namespace) -> int:
    # An outage, failing rounds, votes set aside: a line when it begins and one when it ends.
    logging.basicConfig(format="hotcount sync: %(message)s", level=logging.INFO)
    strategy: Any = options.strategy or ("cached" if options.cache else "batched")
    if options.cache and options.cache.startswith("memory:"):
        say("hotcount sync: --cache must be a server's: memory:// counts inside one process only")
        return BAD_USAGE
    if options.views:
        if not options.cache:
            say("hotcount sync: --views needs --cache, where the counts are")
            return BAD_USAGE
        if options.page is not None:
            say("hotcount sync: --page is for votes; 1000 counts of --views are saved at once")
            return BAD_USAGE
        with open_views(options) as views:
            return print_synced(options, *save_counts(views, options))
    if strategy in IN_CACHE and not options.cache:
        what = "counts are" if strategy == "cached" else "votes wait"
        say(f"hotcount sync: strategy {strategy} needs --cache, where its {what}")
        return BAD_USAGE
    if strategy == "slotted" and options.cache:
        say("hotcount sync: strategy slotted has no cache")
        return BAD_USAGE
    if strategy == "batched" and options.db.startswith("sqlite:"):
        say("hotcount sync: batched on SQLite counts in the items' table; there is nothing to fold")
        return BAD_USAGE
    more: dict[str, Any] = {"workers": options.workers}
    if options.page is not None:
        more["page"] = options.page
    if strategy in IN_CACHE:
        more["interval"] = options.interval
    votes = hotcount.Votes(options.db, options.cache, strategy, **_schema.names_of(options), **more)
    with votes:
        work = save_counts if strategy in IN_CACHE else fold_counts
        return print_synced(options, *work(votes, options))


def print_synced(options: argparse.Namespace, settled: bool, stats: dict[str, Any]) -> int:
    """Prints the counts of `hotcount sync` and returns its exit code."""
    if options.json:
        print(json.dumps({"settled": settled, **stats}, indent=2))
    else:
        numbers = {name: number for name, number in stats.items() if not name.startswith("last_")}
        print(", ".join(f"{name} {number:,}" for name, number in numbers.items()))
    return DONE if settled else CHECK_FAILED


# -- report -----------------------------------------------------------------


def draw(options: argparse.Namespace) -> int:
    report.check()
    if options.check:
        return DONE
    if not options.runs or options.output is None:
        raise hotcount.ConfigError("a report needs a RUN and -o FILE")
    page = report.html([report.read(folder) for folder in options.runs])
    try:
        options.output.write_text(page, encoding="utf-8")
    except OSError as error:
        raise hotcount.ConfigError(f"{options.output}: {error.strerror}") from None
    return DONE


# -- load -------------------------------------------------------------------


# Commands of `hotcount load` that do their own statistics on runs of hotcount-load.
STUDIES = ("search", "sweep", "scale", "calibrate", "compare", "diff")


def load(arguments: Sequence[str]) -> int:
    from hotcount._load_trials import NoProgram, program

    try:
        if arguments[:1] and arguments[0] in STUDIES:
            from hotcount import _load_cli

            return _load_cli.main(arguments[0], arguments[1:])
        found = program()
    except NoProgram as error:
        say(f"hotcount load: {error}")
        return INCONCLUSIVE
    except hotcount.ConfigError as error:
        say(f"hotcount load: {error}")
        return BAD_USAGE
    sys.stdout.flush()
    os.execv(found, [found, *arguments])


# -- the command ------------------------------------------------------------


def url(text: str) -> str:
    """The URL itself, or the one in env:NAME or in the first line of file:PATH."""
    kind, _, name = text.partition(":")
    if kind == "env":
        found = os.environ.get(name, "")
        if not found:
            raise argparse.ArgumentTypeError(f"the environment has no {name}")
        return found
    if kind == "file":
        try:
            found = Path(name).read_text(encoding="utf-8").split("\n", 1)[0].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise argparse.ArgumentTypeError(f"{name} cannot be read: {error}") from None
        if not found:
            raise argparse.ArgumentTypeError(f"{name} is empty")
        return found
    return text


def existing(text: str) -> str:
    """url() of an existing database: opening a missing SQLite file would create an empty one."""
    found = url(text)
    if _doctor.missing_file(found):
        raise argparse.ArgumentTypeError("there is no such file")
    return found


URLS = (
    "A URL may be given as env:NAME or file:PATH, which hold it: a command line, and a password in "
    "it, shows in `ps`."
)


def without_urls(message: str, given: Sequence[str]) -> str:
    """Without the arguments that may be a URL, with its password, in the wrong place."""
    for argument in given:
        if "@" in argument or "://" in argument:
            for text in (argument, *re.split("[=<>,]", argument)):
                if "@" in text or "://" in text:
                    message = message.replace(repr(text), "***").replace(text, "***")
    return message


class Parser(argparse.ArgumentParser):
    """Quotes no argument that may be a URL, with its password, in the wrong place."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        self.given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        super().error(without_urls(message, self.given))


def positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return number


def count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to 1000")
    return number


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="hotcount",
        description="Counts that many writers touch at once.",
        epilog="Exit codes: 0 done, 1 a check failed, 2 bad usage, 3 inconclusive.",
    )
    top.add_argument("--version", action="version", version=f"hotcount {hotcount.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    each = commands.add_parser("demo", help=_demo.DESCRIPTION, description=_demo.DESCRIPTION)
    _demo.add_arguments(each, count, positive)
    each.set_defaults(run=_demo.run)

    each = commands.add_parser(
        "doctor",
        help="report settings of servers that make a feature unsafe",
        description=_doctor.DESCRIPTION,
        epilog=f"{URLS} {_doctor.EXIT_CODES}",
    )
    _doctor.add_arguments(each, url, count)
    each.set_defaults(run=_doctor.run)

    each = commands.add_parser(
        "ready",
        help="report whether servers serve calls now: for probes",
        description=_ready.DESCRIPTION,
        epilog=f"{_ready.EPILOG} {URLS}",
    )
    _ready.add_arguments(each, ALL_STRATEGIES, url, positive)
    each.set_defaults(run=_ready.run)

    _keys.add_commands(commands.add_parser, ALL_STRATEGIES, existing, positive, count, URLS)

    each = commands.add_parser(
        "schema",
        help="print the SQL of new tables, or of what existing tables lack",
        description="Without a URL: prints the SQL of new tables. With a URL: prints the "
        "statements that its tables still need for Votes, in an order that runs beside the "
        "application. Changes nothing.",
        epilog=URLS,
    )
    each.add_argument(
        "url", nargs="?", type=existing, metavar="URL", help="the database to look at"
    )
    _schema.add_arguments(each, ALL_STRATEGIES)
    each.set_defaults(run=_schema.run, refuse=each.error)

    each = commands.add_parser(
        "sweep",
        help="find sorted sets without a TTL, which unguarded upserts left behind",
        description="Finds sorted sets without a TTL whose key matches. With --delete they are "
        "deleted, each looked at again in the step that deletes it; without, they are listed.",
        epilog=URLS,
    )
    each.add_argument(
        "url", type=url, metavar="URL", help="redis://host:port/db, redis+unix:///path.sock"
    )
    each.add_argument(
        "--match", required=True, metavar="PATTERN", help="whole keys: * ? [a-z] and \\ as in Redis"
    )
    each.add_argument("--delete", action="store_true", help="delete them (default: list them)")
    each.add_argument("--json", action="store_true", help="the result as JSON")
    each.set_defaults(run=sweep)

    each = commands.add_parser(
        "sync",
        help="bring counts and waiting votes of Votes and WriteBehindCounter to the database",
        description="With --views: saves the counts of a WriteBehindCounter. With --cache: saves "
        "the counts of strategy cached, or writes the waiting votes of write_behind. Otherwise: "
        "folds the journal of batched, or the slots of slotted, into the item table. Processes "
        "that vote fold too; run this command where none of them runs. A line on stderr reports "
        "that rounds begin to fail or work again.",
        epilog=URLS + " Exit codes: 0 done, 1 something is not saved (--once), or every round has "
        "failed, 2 bad usage, 3 a server failed (--once).",
    )
    each.add_argument(
        "--db", type=existing, required=True, metavar="URL", help="the database of the votes"
    )
    each.add_argument(
        "--cache", type=url, metavar="URL", help="the cache that counts them, or has copies"
    )
    each.add_argument(
        "--strategy",
        choices=["batched", "slotted", *IN_CACHE],
        help="of the votes (default: cached with --cache, else batched)",
    )
    each.add_argument(
        "--views",
        nargs="?",
        const="hotcount_views",
        metavar="TABLE",
        help="save the counts of a WriteBehindCounter (default table: hotcount_views)",
    )
    each.add_argument(
        "--prefix", default="views", help="of the keys of --views in the cache (default: views)"
    )
    each.add_argument("--once", action="store_true", help="until all is saved, then end")
    each.add_argument(
        "--timeout", type=positive, default=60.0, help="seconds that --once may take (default: 60)"
    )
    each.add_argument(
        "--interval", type=positive, default=1.0, help="least seconds between rounds (default: 1)"
    )
    each.add_argument(
        "--stop-within",
        type=positive,
        default=8.0,
        metavar="SECONDS",
        help="after SIGTERM or Ctrl-C, how long the round under way may go on before it is "
        "abandoned (default: 8)",
    )
    each.add_argument("--page", type=int, help="counts of votes saved at once (default: 1000)")
    each.add_argument("--workers", type=int, default=2, help="threads (default: 2)")
    _schema.add_names(each)
    each.add_argument("--json", action="store_true", help="the result as JSON")
    each.set_defaults(run=sync)

    each = commands.add_parser(
        "reconcile",
        help="correct counts of Votes that differ from their votes",
        description="Looks at all items in pages, each committed by itself, and corrects counts "
        "that differ, while the application votes. Then lists votes and counts of items whose "
        "rows are gone. An interrupted run prints the --after with which the next run continues.",
        epilog=URLS + " Exit codes: 0 done, 1 a count is wrong (--dry-run), or would leave 64 "
        "bits, 2 bad usage, 3 a server failed.",
    )
    _reconcile.add_arguments(each, ALL_STRATEGIES, existing)
    each.set_defaults(run=_reconcile.run, refuse=each.error)

    what = "draw runs and comparisons of hotcount-load as one HTML file that needs no network"
    each = commands.add_parser("report", help=what, description=what)
    each.add_argument("runs", nargs="*", metavar="RUN", help="a folder that --out kept")
    each.add_argument("-o", "--output", type=Path, metavar="FILE", help="the HTML file to write")
    each.add_argument(
        "--check", action="store_true", help="only report whether a page could be written here"
    )
    each.set_defaults(run=draw)

    # Listed for --help; main() hands everything after it on unread.
    commands.add_parser(
        "load",
        help="hotcount-load with the arguments that follow; search, sweep, scale, calibrate, "
        "compare and diff evaluate several runs",
        add_help=False,
    )
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["load"]:
        return load(given[1:])
    options = parser().parse_args(given)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # Names that its encoding lacks.
    code = DONE
    try:
        code = int(options.run(options))
        sys.stdout.flush()  # Here rather than at exit, where a reader that left would be a failure.
        return code
    except BrokenPipeError:
        # The reader of the output has closed it. Stdout is closed unflushed, or Python complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code
    except hotcount.ConfigError as error:
        say(f"hotcount {options.command}: {error}")
        return BAD_USAGE
    except hotcount.HotcountError as error:
        say(f"hotcount {options.command}: {error}")
        return INCONCLUSIVE
    except OSError as error:
        # Stdout takes no more: a full disk. Errors of hotcount may be OSErrors too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        say(f"hotcount {options.command}: {error}")
        return INCONCLUSIVE


if __name__ == "__main__":
    sys.exit(main())
