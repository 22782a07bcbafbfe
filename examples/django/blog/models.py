"""Posts, their likes, and how often each was looked at on each day."""

from datetime import datetime, timedelta, timezone
from typing import Any

import hotcount
from django.conf import settings
from django.db import models
from hotcount.integrations.django.models import OneVote, VotedMixin, VoteMixin

# With a retry queue a page is shown while Redis is unavailable; the view is counted afterwards.
VIEWS = hotcount.PeriodCounter(
    hotcount.connect_store(settings.VIEWS_STORE), "day", retry=hotcount.RetryQueue()
)


class Post(VotedMixin, models.Model):
    title = models.CharField(max_length=200)

    def __str__(self) -> str:
        return str(self.title)

    @property
    def views_key(self) -> str:
        return f"post:{self.pk}"

    def note_view(self) -> None:
        VIEWS.add(self.views_key)

    def views_of_days(self, days: int) -> list[tuple[Any, int]]:
        """The views on each of the last `days` days of UTC, today included."""
        now = datetime.now(timezone.utc)
        tomorrow = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        series = VIEWS.series(self.views_key, tomorrow - timedelta(days=days), tomorrow)
        return [(day.date(), views) for day, views in series]


class Like(VoteMixin, models.Model):
    post = models.ForeignKey(Post, on_delete=models.CASCADE)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)

    class Meta:
        constraints = [OneVote(fields=["post", "user"], name="one_like_per_post")]
