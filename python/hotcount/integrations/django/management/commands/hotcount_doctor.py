"""`hotcount doctor` for the databases and stores of the project."""

from __future__ import annotations

from typing import Any

from django.conf import settings as django_settings

from hotcount.integrations.django._schema import settings
from hotcount.integrations.django.management._command import VotesCommand


class Command(VotesCommand):
    """The database of each vote model, and the stores of the settings."""

    help = "Says which settings of databases and stores are unsafe: `hotcount doctor`."

    def handle(self, **options: Any) -> None:
        """Runs it."""
        more = ["--json"] if options["json"] else []
        limits = getattr(django_settings, "HOTCOUNT_RATELIMIT", {}).get("STORE")
        stores = {url for url in (settings().cache, limits) if isinstance(url, str)}
        codes = [
            self.run("doctor", url, *names, *more)
            for _, url, names in self.targets(options["models"], options["database"])
        ]
        codes += [self.run("doctor", url, *more) for url in sorted(stores)]
        self.end(*codes)
