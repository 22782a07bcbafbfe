"""`hotcount reconcile` for the vote models of the project."""

from __future__ import annotations

from typing import Any

from hotcount.integrations.django.management._command import VotesCommand, strategy_options


class Command(VotesCommand):
    """Voters are not disturbed."""

    help = "Sets counts right that disagree with the votes: `hotcount reconcile`."

    def add_arguments(self, parser: Any) -> None:
        """Some of `hotcount reconcile`."""
        super().add_arguments(parser)
        parser.add_argument("--dry-run", action="store_true", help="only look")

    def handle(self, **options: Any) -> None:
        """Runs it."""
        more = [f"--{name.replace('_', '-')}" for name in ("dry_run", "json") if options[name]]
        self.end(
            *(
                self.run("reconcile", url, *strategy_options(), *names, *more)
                for _, url, names in self.targets(options["models"], options["database"])
            )
        )
