"""Counts in Django's admin.

@admin.register(Post)
class PostAdmin(VotedAdmin, admin.ModelAdmin):
    list_display = ["title", "votes"]
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from hotcount.integrations.django.models import with_counts

__all__ = ["VotedAdmin"]


class VotedAdmin:
    """Before admin.ModelAdmin, for a model with VotedMixin: the column "votes", which sorts.

    It shows the exact count, read in the list's own query, and sorts by `vote_count`, which may lag
    by the fold interval.
    """

    def get_queryset(self, request: Any) -> Any:
        """The list's rows with their counts."""
        return with_counts(super().get_queryset(request))  # type: ignore[misc]

    def votes(self, item: Any) -> int:
        """The column."""
        return int(item.exact_count)

    votes = admin.display(votes, description="votes", ordering="vote_count")
