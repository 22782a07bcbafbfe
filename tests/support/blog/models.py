"""Posts, which users vote for, and stars for tags, which have no column for their counts.

BLOG_CHANGED and BLOG_LIKES make of them what they may have been before, or what is wrong.
"""

from __future__ import annotations

import os
import uuid
from typing import Any

from django.conf import settings
from django.db import models
from hotcount.integrations.django.models import OneVote, VotedManager, VotedMixin, VoteMixin

CHANGED = "BLOG_CHANGED" in os.environ
RELATED = os.environ.get("BLOG_RELATED")
LIKES = os.environ.get("BLOG_LIKES", "")
# Likes as they were before hotcount; "counted" ones; "voted": posts without votes; "one vote":
# a OneVote without VoteMixin.
VOTED: Any = VotedMixin if LIKES in ("", "voted", "one vote") else models.Model
VOTE: Any = VoteMixin if not LIKES else models.Model
ONE: Any = OneVote if LIKES in ("", "one vote") else models.UniqueConstraint


class Post(VOTED):
    if "BLOG_UUID" in os.environ:
        id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    title = models.CharField(max_length=300 if CHANGED else 200)
    if LIKES == "counted":
        vote_count = models.BigIntegerField(default=0)


class PostVote(VOTE):
    post = models.ForeignKey(Post, on_delete=models.CASCADE, related_name=RELATED)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    if CHANGED:
        val = models.BigIntegerField(default=1, db_default=1, help_text="-1, 0 or 1")
        why = models.CharField(max_length=9, default="", db_default="")
    if "BLOG_NOTED" in os.environ:
        noted = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [ONE(fields=["post", "user"], name="one_vote_per_post")]


class Tag(models.Model):
    word = models.CharField(max_length=50, primary_key=True)

    objects = VotedManager()


class TagStar(VoteMixin, models.Model):
    tag = models.ForeignKey(Tag, on_delete=models.CASCADE, db_column="word")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, to_field="username")

    class Meta:
        db_table = "starred tags"
        constraints = [OneVote(fields=["tag", "by"], name="one_star_per_tag")]
