"""The Django app: the signal handlers of `migrate` and `flush`, and the system checks of votes."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.signals import setting_changed
from django.db.models.signals import post_migrate, pre_migrate


class HotcountConfig(AppConfig):
    """INSTALLED_APPS = ["hotcount.integrations.django", ...], for votes; limits need no app."""

    name = "hotcount.integrations.django"
    label = "hotcount"
    verbose_name = "hotcount"

    def ready(self) -> None:
        """Connects to `migrate` and registers the checks. No signal of a model is used."""
        from hotcount.integrations.django import _migrate
        from hotcount.integrations.django._checks import check_models
        from hotcount.integrations.django._schema import settings

        pre_migrate.connect(_migrate.before, sender=self)
        post_migrate.connect(_migrate.after, sender=self)
        setting_changed.connect(_forget_settings)
        checks.register(check_models, checks.Tags.models)
        settings()  # ImproperlyConfigured when the process starts.


def _forget_settings(*, setting: str, **_: Any) -> None:
    from hotcount.integrations.django import _votes

    if setting == "HOTCOUNT_VOTES":
        _votes.close_votes()
