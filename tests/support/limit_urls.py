"""The Django routes of limit_apps.py, and those of test_django_limits.py."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from hotcount.integrations.django import UNSAFE, ratelimit
from hotcount.integrations.rest_framework import (
    AnonRateThrottle,
    ScopedRateThrottle,
    UserRateThrottle,
)
from rest_framework.response import Response
from rest_framework.views import APIView

from tests.support.limit_apps import wrapped

by_user: dict[str, Any] = {"key": "header:x-user"}


@ratelimit(**by_user, rate="2/m")
def two(request: HttpRequest) -> HttpResponse:
    return HttpResponse("two")


@ratelimit(**by_user, rate="1000/m")
async def opened(request: HttpRequest) -> HttpResponse:
    return HttpResponse("open")


@ratelimit(**by_user, rate="1000/m")
def denied(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=401)


@ratelimit(**by_user, rate="1000/m")
def boom(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("boom")


def call_wrapped(request: HttpRequest) -> HttpResponse:
    return HttpResponse(wrapped(request.headers["x-user"]))


@ratelimit(**by_user, rate="1/m", block=False)
def looks(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(request.limited))


@ratelimit(**by_user, rate="1/m", method=UNSAFE)
def unsafe(request: HttpRequest) -> HttpResponse:
    return HttpResponse("unsafe")


@ratelimit(key="ip", rate="1/m")
def by_ip(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ip")


@ratelimit(**by_user, rate="0/s")
def never(request: HttpRequest) -> HttpResponse:
    return HttpResponse("never")


def rate_of_plan(group: str, request: HttpRequest) -> str | None:
    return {"gold": None, "free": "1/m"}[request.GET["plan"]]


@ratelimit(key="tests.support.limit_urls.key_of_request", rate=rate_of_plan)
def planned(request: HttpRequest) -> HttpResponse:
    return HttpResponse("planned")


def key_of_request(group: str, request: HttpRequest) -> tuple[str, str]:
    return "who", request.GET["who"]


@ratelimit(key=lambda group, request: None, rate="1/m")
def without_key(request: HttpRequest) -> HttpResponse:
    return HttpResponse("none")


# A refusal of the outer limit must spend nothing of the inner one, and the other way round.
@ratelimit(**by_user, rate="3/m", group="outer")
@ratelimit(**by_user, rate="1/m", group="inner")
def nested(request: HttpRequest) -> HttpResponse:
    return HttpResponse("nested")


class Throttled(APIView):
    throttle_classes: tuple[Any, ...] = (AnonRateThrottle, UserRateThrottle)

    def get(self, request: Any) -> Response:
        return Response({"throttled": False})


@ratelimit(**by_user, rate="3/h", group="hard")
@ratelimit(**by_user, rate="1/h", group="soft", block=False)
def soft(request: HttpRequest) -> HttpResponse:
    return HttpResponse("soft")


@method_decorator(ratelimit(key="ip", rate="1/h", block=False), name="dispatch")
class SoftThrottled(Throttled):
    throttle_classes = (AnonRateThrottle,)


class Plain(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("plain")


@method_decorator(ratelimit(key="ip", rate="1/h"), name="dispatch")
class First(Plain):
    pass


@method_decorator(ratelimit(key="ip", rate="1/h"), name="dispatch")
class Second(Plain):
    pass


@method_decorator(ratelimit(key="ip", rate="1/h"), name="dispatch")
class AsyncClass(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("async")


class Other(Plain):
    pass


class Closed(APIView):
    class Never(AnonRateThrottle):
        rate = "0/min"

    throttle_classes = (Never,)

    def get(self, request: Any) -> Response:
        return Response({})


class Reports(APIView):
    throttle_classes = (ScopedRateThrottle,)
    throttle_scope = "reports"

    def get(self, request: Any) -> Response:
        return Response({})


class Forbidden(APIView):
    throttle_classes = (UserRateThrottle,)

    def get(self, request: Any) -> Response:
        raise PermissionDenied


urlpatterns = [
    path("two", two),
    path("open", opened),
    path("denied", denied),
    path("boom", boom),
    path("wrapped", call_wrapped),
    path("looks", looks),
    path("unsafe", unsafe),
    path("ip", by_ip),
    path("never", never),
    path("planned", planned),
    path("without-key", without_key),
    path("nested", nested),
    path("throttled", Throttled.as_view()),
    path("soft", soft),
    path("soft-throttled", SoftThrottled.as_view()),
    path("first", First.as_view()),
    path("second", Second.as_view()),
    path("wrapped-first", ratelimit(key="ip", rate="1/h")(Plain.as_view())),
    path("wrapped-second", ratelimit(key="ip", rate="1/h")(Other.as_view())),
    path("async-class", AsyncClass.as_view()),
    path("closed", Closed.as_view()),
    path("reports", Reports.as_view()),
    path("forbidden", Forbidden.as_view()),
]
