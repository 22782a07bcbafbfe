"""Likes and views beside the titles; the views of a week on a post's own page."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from hotcount.integrations.django.admin import VotedAdmin

from blog.models import VIEWS, Post


class PostAdmin(VotedAdmin, admin.ModelAdmin):
    list_display = ("title", "votes", "views_today")
    list_per_page = 20
    readonly_fields = ("vote_count", "views_of_a_week")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The views of all posts of a page, in one round trip to Redis."""
        page = super().get_changelist_instance(request)
        for post, views in zip(
            page.result_list, VIEWS.get_many([post.views_key for post in page.result_list])
        ):
            post.today = views
        return page

    def views_today(self, post: Any) -> int:
        return int(post.today)

    def views_of_a_week(self, post: Post) -> str:
        return ", ".join(f"{day:%a} {views}" for day, views in post.views_of_days(7))


admin.site.register(Post, PostAdmin)
