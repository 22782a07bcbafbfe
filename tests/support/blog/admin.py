"""The list of posts in the admin."""

from __future__ import annotations

from django.contrib import admin
from hotcount.integrations.django.admin import VotedAdmin

from tests.support.blog.models import Post


@admin.register(Post)
class PostAdmin(VotedAdmin, admin.ModelAdmin):
    list_display = ("title", "votes")
