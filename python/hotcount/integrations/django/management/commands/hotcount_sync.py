"""`hotcount sync` for the vote models of the project."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from hotcount.integrations.django.management._command import VotesCommand, strategy_options


class Command(VotesCommand):
    """Without --once it runs until SIGTERM or SIGINT, for one model."""

    help = "Brings the counts of votes to the column vote_count: `hotcount sync`."

    def add_arguments(self, parser: Any) -> None:
        """Some of `hotcount sync`."""
        super().add_arguments(parser)
        parser.add_argument("--once", action="store_true", help="until all is saved, then end")
        parser.add_argument("--interval", default="1", help="least seconds between rounds")
        parser.add_argument("--timeout", default="60", help="seconds that --once may take")

    def handle(self, **options: Any) -> None:
        """Runs it."""
        targets = self.targets(options["models"], options["database"])
        if len(targets) > 1 and not options["once"]:
            labels = " ".join(label for label, _, _ in targets)
            raise CommandError(f"name one of the models, or say --once: {labels}")
        more = [f"--interval={options['interval']}", f"--timeout={options['timeout']}"]
        more += [f"--{name}" for name in ("once", "json") if options[name]]
        self.end(
            *(
                self.run("sync", f"--db={url}", *strategy_options(), *names, *more)
                for _, url, names in targets
            )
        )
