"""A like button, plain and async."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, JsonResponse
from django.urls import path

from tests.support.blog.models import Post


def like(request: HttpRequest, pk: int) -> JsonResponse:
    cast = Post.votes.toggle(pk, user=request.user.pk, with_count=True)
    return JsonResponse({"liked": cast.counted, "count": int(cast.count)})


async def like_soon(request: HttpRequest, pk: int) -> JsonResponse:
    user = await request.auser()
    cast = await Post.avotes.toggle(pk, user=user.pk, with_count=True)
    return JsonResponse({"liked": cast.counted, "count": int(cast.count)})


urlpatterns = [
    path("admin/", admin.site.urls),
    path("like/<int:pk>", like),
    path("soon/<int:pk>", like_soon),
]
