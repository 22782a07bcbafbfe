"""Limits of Django views, with the names and arguments of django-ratelimit.

Votes of models, for which this is an app: hotcount.integrations.django.models. Needs Django (extra:
``hotcount[django]``). The settings in HOTCOUNT_RATELIMIT:

- STORE: the URL of a store. It has no default; "memory://" counts in each process alone.
- ALGORITHM ("gcra"), NAME ("django"), ON_ERROR ("raise"), TIMEOUT: options of hotcount.Limiter.
- RATE, KEY ("ip"): a limit of all requests, in the middleware.
- HEADERS: "both", "ietf" (RateLimit, RateLimit-Policy), "legacy" (X-RateLimit) or "none".
- VIEW: the dotted path of a plain view that answers refusals, called with the request and the
  exception, whose `decision` says why. With status 429 the request spends nothing of other limits.
  None: a line of text. Its default is RATELIMIT_VIEW.
- TRUSTED_PROXIES: addresses and networks of the proxies whose X-Forwarded-For is believed.
- IPV6_PREFIX (64): how many bits of an IPv6 address count.
- ENABLE: False lets all requests pass, as tests want it. Its default is RATELIMIT_ENABLE.

Example::

    # settings.py
    MIDDLEWARE = ["hotcount.integrations.django.RateLimitMiddleware", ...]
    HOTCOUNT_RATELIMIT = {"STORE": "redis://localhost:6379", "ON_ERROR": "open"}

    # views.py
    @ratelimit(key="ip", rate="5/m", method="POST")
    def login(request): ...
"""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from hotcount._limit import heard_by
from hotcount.errors import ConfigError, LimitExceeded
from hotcount.integrations._django import Limit, Methods, check_rate, django_settings, limits_of
from hotcount.integrations._web import to_headers, to_message
from hotcount.results import Decision

__all__ = [
    "ALL",
    "UNSAFE",
    "RateLimitMiddleware",
    "Ratelimited",
    "aget_usage",
    "ais_ratelimited",
    "get_usage",
    "is_ratelimited",
    "ratelimit",
]

ALL = None
UNSAFE = ("DELETE", "PATCH", "POST", "PUT")
View = TypeVar("View", bound=Callable[..., Any])


class Ratelimited(PermissionDenied):
    """A refused request. RateLimitMiddleware answers 429; without it Django answers 403.

    `decision` says why. It names no host and no key.
    """

    def __init__(self, decision: Decision) -> None:
        super().__init__(to_message(decision))
        self.decision = decision


def ratelimit(
    group: str | None = None,
    key: Any = None,
    rate: Any = None,
    method: Methods = ALL,
    block: bool = True,
    *,
    cost: int | Callable[[str, HttpRequest], int] = 1,
) -> Callable[[View], View]:
    """Limits a view, plain or async; request.limited says whether one of its limits has refused.

    Args:
        group: Views of one group share the limit. None: the view's module and name.
        key: The client of a request: "ip", "user", "user_or_ip", "header:NAME", "get:NAME",
            "post:NAME", the dotted path of a function, or a function of group and request that
            returns str, bytes or a tuple of them.
        rate: Such as "5/m", "100/h" or "10/5m"; None is no limit. "0/s" refuses everybody. Also a
            function of group and request that returns one, or its dotted path.
        method: The HTTP methods that count: one, several, ALL, or UNSAFE.
        block: Whether a refusal raises Ratelimited. If not, the view looks at request.limited.
        cost: The cost of a request, 1 or more; also a function of group and request.

    Raises:
        ConfigError: key or rate is bad; where it stands, at import.
    """
    if key is None:
        raise ConfigError("ratelimit() needs a key: 'ip', 'user_or_ip', 'header:NAME', a function")
    check_rate(rate)

    def decorator(view: View) -> View:
        limit = Limit(group or _name(view), key, rate, method, cost)
        wrapper: Callable[..., Any]
        # A method that method_decorator() has bound: dispatch() of an async view is a plain one.
        owner = getattr(getattr(view, "func", view), "__self__", None)
        if iscoroutinefunction(view) or getattr(owner, "view_is_async", False):

            @functools.wraps(view)
            async def limited_soon(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                decision = await limit.hit_soon(request)
                _note(request, decision, block)
                return await view(request, *args, **kwargs)

            wrapper = limited_soon
        else:

            @functools.wraps(view)
            def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                decision = limit.hit_now(request)
                _note(request, decision, block)
                return view(request, *args, **kwargs)

            wrapper = limited
        return cast(View, wrapper)

    return decorator


def _name(view: Any) -> str:
    """The group of a view's own limits."""
    owner = getattr(getattr(view, "func", view), "__self__", None)
    if owner is not None:
        return f"{type(owner).__module__}.{type(owner).__qualname__}.{view.__name__}"
    of_class = getattr(view, "view_class", None) or getattr(view, "cls", None)
    named = of_class or view
    return f"{named.__module__}.{named.__qualname__}"


def get_usage(
    request: HttpRequest,
    group: str | None = None,
    fn: Callable[..., Any] | None = None,
    key: Any = None,
    rate: Any = None,
    method: Methods = ALL,
    increment: bool = False,
) -> dict[str, Any] | None:
    """The used part of a request's limit; with increment the request counts. None: no limit.

    Args:
        request: The request.
        group: The group of the limit; without it the name of fn.
        fn: The view.
        key, rate, method: As in ratelimit().
        increment: Whether this is a hit.

    Returns:
        "count", "limit", "should_limit" (without increment: whether the next hit is refused) and
        "time_left", in seconds.
    """
    limit = _limit_of(group, fn, key, rate, method)
    return _usage(limit.hit_now(request, takes=increment), increment)


async def aget_usage(
    request: HttpRequest,
    group: str | None = None,
    fn: Callable[..., Any] | None = None,
    key: Any = None,
    rate: Any = None,
    method: Methods = ALL,
    increment: bool = False,
) -> dict[str, Any] | None:
    """get_usage() for async views: the loop is not blocked."""
    limit = _limit_of(group, fn, key, rate, method)
    return _usage(await limit.hit_soon(request, takes=increment), increment)


def _limit_of(group: str | None, fn: Any, key: Any, rate: Any, method: Methods) -> Limit:
    if group is None and fn is None:
        raise ConfigError("a limit needs a group, or the view as fn")
    return Limit(group or _name(fn), key, rate, method, 1)


def _usage(decision: Decision | None, increment: bool) -> dict[str, Any] | None:
    if decision is None:
        return None
    return {
        "count": decision.limit - decision.remaining + (increment and not decision.allowed),
        "limit": decision.limit,
        "should_limit": not decision.allowed,
        "time_left": math.ceil(decision.retry_after or decision.reset_after),
    }


def is_ratelimited(
    request: HttpRequest,
    group: str | None = None,
    fn: Callable[..., Any] | None = None,
    key: Any = None,
    rate: Any = None,
    method: Methods = ALL,
    increment: bool = False,
) -> bool:
    """Whether a limit refuses a request: get_usage()'s "should_limit", noted in request.limited."""
    return _limited(request, get_usage(request, group, fn, key, rate, method, increment))


async def ais_ratelimited(
    request: HttpRequest,
    group: str | None = None,
    fn: Callable[..., Any] | None = None,
    key: Any = None,
    rate: Any = None,
    method: Methods = ALL,
    increment: bool = False,
) -> bool:
    """is_ratelimited() for async views: the loop is not blocked."""
    return _limited(request, await aget_usage(request, group, fn, key, rate, method, increment))


def _limited(request: HttpRequest, usage: dict[str, Any] | None) -> bool:
    limited = usage is not None and usage["should_limit"]
    request.limited = limited or getattr(request, "limited", False)
    return limited


_functions: list[Any] = [ratelimit, get_usage, is_ratelimited, aget_usage, ais_ratelimited]
for _each in _functions:  # method=ratelimit.UNSAFE
    _each.ALL, _each.UNSAFE = ALL, UNSAFE


def _note(request: HttpRequest, decision: Decision | None, block: bool) -> None:
    refused = decision is not None and not decision
    request.limited = refused or getattr(request, "limited", False)
    if refused and block:
        assert decision is not None
        raise Ratelimited(decision)


class RateLimitMiddleware:
    """Answers refusals with 429 and puts the headers of limits on every response.

    With RATE in the settings it limits all requests by KEY. It serves plain and async stacks.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)
        values = django_settings().values  # ImproperlyConfigured when the server starts.
        _ = django_settings().view
        stack = list(settings.MIDDLEWARE)
        authentication = "django.contrib.auth.middleware.AuthenticationMiddleware"
        ours = f"{__name__}.{type(self).__name__}"
        by_user = values["RATE"] is not None and str(values["KEY"]).startswith("user")
        if by_user and (ours not in stack or authentication not in stack[: stack.index(ours)]):
            raise ImproperlyConfigured(
                f"KEY {values['KEY']!r} needs {ours} behind {authentication} in MIDDLEWARE"
            )

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Answers one request."""
        if self._is_async:
            return self._answer_soon(request)
        heard_by.set(limits_of(request).hear)
        limit = self._limit()
        decision = limit.hit_now(request) if limit else None
        if decision is not None and not decision:
            response: HttpResponseBase = _rendered(refusal(request, Ratelimited(decision)))
        else:
            response = self._get_response(request)
        if limits_of(request).is_refused(response.status_code):
            limits_of(request).give_back_now(django_settings().values["TIMEOUT"])
        return self._with_headers(request, response)

    async def _answer_soon(self, request: HttpRequest) -> HttpResponseBase:
        heard_by.set(limits_of(request).hear)
        limit = self._limit()
        decision = await limit.hit_soon(request) if limit else None
        if decision is not None and not decision:
            # VIEW is a plain function.
            response: HttpResponseBase = await sync_to_async(
                lambda: _rendered(refusal(request, Ratelimited(decision)))
            )()
        else:
            response = await self._get_response(request)
        if limits_of(request).is_refused(response.status_code):
            await limits_of(request).give_back_soon(django_settings().values["TIMEOUT"])
        return self._with_headers(request, response)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The answer to a refusal: of @ratelimit, and of functions that Limiter.limit decorates."""
        if not isinstance(error, (Ratelimited, LimitExceeded)):
            return None
        limits_of(request).hear(error.decision)
        return refusal(request, error)

    @staticmethod
    def _limit() -> Limit | None:
        values = django_settings().values
        if values["RATE"] is None:
            return None
        return Limit("all requests", values["KEY"], values["RATE"], ALL, 1)

    @staticmethod
    def _with_headers(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        style, status = django_settings().headers, response.status_code
        for name, value in to_headers(limits_of(request).decision, style, status).items():
            response[name] = value
        return response


def refusal(request: HttpRequest, error: Ratelimited | LimitExceeded) -> HttpResponse:
    """The answer of VIEW, or status 429 with a text for people."""
    if (view := django_settings().view) is not None:
        return view(request, error)
    text = to_message(error.decision)
    return HttpResponse(text, status=429, content_type="text/plain; charset=utf-8")


def _rendered(response: HttpResponse) -> HttpResponse:
    """A TemplateResponse waits for Django to render it, which does so for views alone."""
    render: Callable[[], HttpResponse] | None = getattr(response, "render", None)
    return response if render is None else render()
