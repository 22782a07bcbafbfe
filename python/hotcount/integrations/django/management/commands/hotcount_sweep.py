"""`hotcount sweep` on the cache of HOTCOUNT_VOTES, or on another store."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from hotcount.integrations.django._schema import settings
from hotcount.integrations.django.management._command import HotcountCommand


class Command(HotcountCommand):
    """Without --delete a dry run."""

    help = "Finds sorted sets without a TTL: `hotcount sweep`."

    def add_arguments(self, parser: Any) -> None:
        """Adds the arguments of `hotcount sweep`; the URL is optional."""
        super().add_arguments(parser)
        parser.add_argument("url", nargs="?", help="default: HOTCOUNT_VOTES['CACHE']")
        parser.add_argument(
            "--match", required=True, help="whole keys: * ? [a-z] and \\ as in Redis"
        )
        parser.add_argument("--delete", action="store_true", help="delete them")

    def handle(self, **options: Any) -> None:
        """Runs it."""
        url = options["url"] or settings().cache
        if not isinstance(url, str):
            raise CommandError("HOTCOUNT_VOTES has no CACHE: give the URL of a Redis")
        more = [f"--{name}" for name in ("delete", "json") if options[name]]
        self.end(self.run("sweep", url, f"--match={options['match']}", *more))
