"""Likes and views beside the titles; the views of a week on a post's own page."""

from django.contrib import admin
from hotcount.integrations.django.admin import VotedAdmin

from blog.models import Post


class PostAdmin(VotedAdmin, admin.ModelAdmin):
    list_display = ("title", "votes", "views_today")
    list_per_page = 20
    readonly_fields = ("vote_count", "views_of_a_week")

    def views_today(self, post: Post) -> int:
        ((_, views),) = post.views_of_days(1)
        return int(views)

    def views_of_a_week(self, post: Post) -> str:
        return ", ".join(f"{day:%a} {views}" for day, views in post.views_of_days(7))


admin.site.register(Post, PostAdmin)
