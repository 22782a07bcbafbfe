"""The commands of `hotcount` with the databases, tables and stores of a Django project."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections, router

from hotcount import cli
from hotcount._schema import ID_TYPES, NAMES
from hotcount.integrations.django._schema import names_of, settings, vote_models
from hotcount.integrations.django._votes import database_url


class HotcountCommand(BaseCommand):
    """Runs a command of `hotcount`; its exit codes are those of `hotcount`."""

    requires_system_checks: Any = ()

    def add_arguments(self, parser: Any) -> None:
        """Adds the arguments of every command."""
        parser.add_argument("--json", action="store_true", help="the result as JSON")

    def run(self, *arguments: str) -> int:
        """`hotcount` in this process, so that no password shows in `ps`."""
        self.stdout.ending = ""  # print() writes the line's end itself.
        with contextlib.redirect_stdout(self.stdout):
            try:
                return cli.main(arguments)
            except SystemExit as end:
                return int(end.code or 0)

    def end(self, *codes: int) -> None:
        """Exits with the worst of the codes."""
        if any(codes):
            sys.exit(max(codes))


class VotesCommand(HotcountCommand):
    """A command about the tables of vote models."""

    def add_arguments(self, parser: Any) -> None:
        """Adds the vote models and the database alias."""
        super().add_arguments(parser)
        parser.add_argument(
            "models", nargs="*", metavar="APP.MODEL", help="vote models (default: all)"
        )
        parser.add_argument(
            "--database", help="the alias (default: where the router writes each model)"
        )

    def targets(self, labels: list[str], alias: str | None) -> list[tuple[str, str, list[str]]]:
        """The label of each vote model, the URL of its database and the names of its tables."""
        found = {model._meta.label: (model, constraint) for model, constraint in vote_models()}
        unknown = {label.lower() for label in labels} - {label.lower() for label in found}
        if unknown or not found:
            known = ", ".join(found) or "none"
            wrong = f"no vote model {sorted(unknown)[0]!r}" if unknown else "no vote model"
            raise CommandError(f"there is {wrong}; vote models: {known}")
        chosen = [
            (label, *each)
            for label, each in found.items()
            if not labels or label.lower() in {wanted.lower() for wanted in labels}
        ]
        return [
            (
                label,
                database_url(using),
                options_of(names_of(model, constraint, connections[using])),
            )
            for label, model, constraint in chosen
            for using in [alias or router.db_for_write(model)]
        ]


def options_of(names: dict[str, Any]) -> list[str]:
    """The options of `hotcount` that name tables, columns and types of ids."""
    types = {of: name for name, of in ID_TYPES.items()}
    options = [f"--{what}-type={types[names[f'{what}_type']]}" for what in ("item", "user")]
    for name, _ in NAMES:
        if names[name] is not None:
            options.append(f"--{name.replace('_', '-')}={names[name]}")
    return [*options, *([] if names["item_count"] else ["--no-item-count"])]


def strategy_options() -> list[str]:
    """--strategy and --cache of HOTCOUNT_VOTES."""
    chosen = settings()
    cache = [f"--cache={chosen.cache}"] if chosen.cache else []
    return [f"--strategy={chosen.strategy}", *cache]
