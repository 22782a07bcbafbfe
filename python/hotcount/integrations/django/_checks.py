"""`manage.py check`: errors and warnings about vote models and the models of their items."""

from __future__ import annotations

import inspect
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models.fields import AutoFieldMixin

from hotcount.integrations.django._schema import OneVote, VoteCountField, vote_models


def check_models(app_configs: Any = None, **_: Any) -> list[checks.CheckMessage]:
    """Registered for the tag "models"."""
    found: list[checks.CheckMessage] = []
    voted: dict[Any, list[str]] = {}
    for model, constraint in vote_models():
        errors = _check_vote_model(model, constraint)
        found += errors
        if not errors:
            item = model._meta.get_field(constraint.item).related_model
            voted.setdefault(item, []).append(model._meta.label)
            found += _check_columns(model, {*constraint.fields, "val", "prev", "version"})
            if isinstance(model._meta.pk, models.AutoField) and not isinstance(
                model._meta.pk, models.BigAutoField
            ):
                found.append(
                    checks.Warning(
                        f"{model._meta.label} numbers its rows with 32 bits, and a vote that is "
                        "repeated uses up a number on PostgreSQL, MariaDB and MySQL",
                        hint="set DEFAULT_AUTO_FIELD to 'django.db.models.BigAutoField'",
                        obj=model,
                        id="hotcount.W001",
                    )
                )
    for model in apps.get_models():
        found += _check_names(model)
        counts = [each for each in model._meta.local_fields if isinstance(each, VoteCountField)]
        holders = voted.get(model, [])
        if counts and len(holders) != 1:
            found.append(
                checks.Error(
                    f"{model._meta.label} is voted for in {', '.join(holders) or 'no model'}",
                    hint="it takes one model with a foreign key to it, VoteMixin and a OneVote in "
                    "Meta.constraints",
                    obj=model,
                    id="hotcount.E001",
                )
            )
    return found


def _check_names(model: Any) -> list[checks.CheckMessage]:
    from hotcount.integrations.django.models import VotedMixin

    return [
        checks.Error(
            f"{model._meta.label}.{name} is not that of VotedMixin",
            hint="give the related_name, field or method of that name another one",
            obj=model,
            id="hotcount.E004",
        )
        for name in ("votes", "avotes")
        if issubclass(model, VotedMixin)
        and inspect.getattr_static(model, name) is not VotedMixin.__dict__[name]
    ]


def _check_vote_model(model: Any, constraint: OneVote) -> list[checks.CheckMessage]:
    options = model._meta
    for name in constraint.fields:
        try:
            field = options.get_field(name)
        except FieldDoesNotExist:
            return []  # Django says so.
        if not isinstance(field, models.ForeignKey):
            return [
                checks.Error(
                    f"OneVote of {options.label} has {name!r}, which is no foreign key",
                    hint="fields: the one to what is voted for, then the one to the user",
                    obj=model,
                    id="hotcount.E002",
                )
            ]
    names = {each.name for each in options.local_concrete_fields}
    if not {"val", "prev", "version"} <= names:
        return [
            checks.Error(
                f"{options.label} has a OneVote and no columns for votes",
                hint="let it begin with VoteMixin: class "
                f"{options.object_name}(VoteMixin, models.Model)",
                obj=model,
                id="hotcount.E003",
            )
        ]
    return []


def _check_columns(model: Any, filled: set[str]) -> list[checks.CheckMessage]:
    return [
        checks.Error(
            f"{field} has to have a value, and a vote of hotcount gives it none",
            hint="a default of the database, such as db_default=Now() in the place of "
            "auto_now_add=True, or null=True",
            obj=model,
            id="hotcount.E005",
        )
        for field in model._meta.local_concrete_fields
        if field.name not in filled
        and not (field.null or field.generated or field.has_db_default())
        and not isinstance(field, AutoFieldMixin)
    ]
