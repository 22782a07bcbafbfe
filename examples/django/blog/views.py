"""A post with its like button, and the routes."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.views.decorators.http import require_POST

from blog.models import Post


def show(request: HttpRequest, pk: int) -> HttpResponse:
    post = get_object_or_404(Post.objects.with_counts().voted_by(request.user), pk=pk)
    post.note_view()
    return render(request, "post.html", {"post": post})


def like(request: HttpRequest, pk: int) -> HttpResponse:
    get_object_or_404(Post, pk=pk)
    Post.votes.toggle(pk, user=request.user.pk)
    return redirect("post", pk)


button: Any = login_required(require_POST(like))
urlpatterns = [
    path("<int:pk>/", show, name="post"),
    path("<int:pk>/like/", button, name="like"),
    path("admin/", admin.site.urls),
]
