"""Settings, keys and limits of views for hotcount.integrations.django."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any, Union

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.http import HttpRequest
from django.utils.module_loading import import_string

import hotcount
from hotcount import aio
from hotcount.errors import ConfigError
from hotcount.integrations._web import Addresses, RequestLimits, Rule, check_style, named_key
from hotcount.joint_hits import face
from hotcount.results import Decision

Methods = Union[str, Collection[str], None]

# Settings of django-ratelimit that are not read, and the setting to use instead.
SETTINGS_OF_DJANGO_RATELIMIT = {
    "RATELIMIT_CACHE_PREFIX": "HOTCOUNT_RATELIMIT has NAME",
    "RATELIMIT_EXCEPTION_CLASS": "a refusal is Ratelimited, and HOTCOUNT_RATELIMIT has VIEW",
    "RATELIMIT_FAIL_OPEN": "HOTCOUNT_RATELIMIT has ON_ERROR",
    "RATELIMIT_HASH_ALGORITHM": "a long part of a key is hashed by SHA-256",
    "RATELIMIT_IPV4_MASK": "an IPv4 address counts by itself",
    "RATELIMIT_IPV6_MASK": "HOTCOUNT_RATELIMIT has IPV6_PREFIX",
    "RATELIMIT_IP_META_KEY": "HOTCOUNT_RATELIMIT has TRUSTED_PROXIES",
    "RATELIMIT_USE_CACHE": "HOTCOUNT_RATELIMIT has STORE",
}


class Settings:
    """The values of HOTCOUNT_RATELIMIT, and the limiter over its store."""

    def __init__(self) -> None:
        given = getattr(settings, "HOTCOUNT_RATELIMIT", {})
        defaults = {
            "STORE": None,
            "ALGORITHM": "gcra",
            "NAME": "django",
            "ON_ERROR": "raise",
            "TIMEOUT": None,
            "RATE": None,
            "KEY": "ip",
            "HEADERS": "both",
            "VIEW": getattr(settings, "RATELIMIT_VIEW", None),
            "TRUSTED_PROXIES": (),
            "IPV6_PREFIX": 64,
            "ENABLE": getattr(settings, "RATELIMIT_ENABLE", True),
        }
        for name, ours in SETTINGS_OF_DJANGO_RATELIMIT.items():
            if hasattr(settings, name):
                raise ImproperlyConfigured(f"{name} is not read: {ours}")
        unknown = set(given) - set(defaults)
        if unknown:
            raise ImproperlyConfigured(
                f"HOTCOUNT_RATELIMIT has {sorted(unknown)[0]!r}; it takes {', '.join(defaults)}"
            )
        self.values: dict[str, Any] = {**defaults, **given}
        self.headers = check_style(self.values["HEADERS"])
        self.addresses = Addresses(self.values["TRUSTED_PROXIES"], self.values["IPV6_PREFIX"])

    @functools.cached_property
    def limiter(self) -> hotcount.Limiter:
        """Of all limits; each hit brings its rate."""
        if self.values["STORE"] is None:
            raise ImproperlyConfigured(
                "HOTCOUNT_RATELIMIT has no STORE: give the URL of one, such as "
                "'redis://localhost:6379'. 'memory://' counts in each process alone"
            )
        return hotcount.Limiter(
            self.values["STORE"],
            "1/second",
            algorithm=self.values["ALGORITHM"],
            name=self.values["NAME"],
            on_error=self.values["ON_ERROR"],
        )

    @functools.cached_property
    def view(self) -> Callable[..., Any] | None:
        """Answers a refusal, called with the request and the exception."""
        value = self.values["VIEW"]
        try:
            view: Callable[..., Any] | None = (
                import_string(value) if isinstance(value, str) else value
            )
        except ImportError as error:
            raise ImproperlyConfigured(f"VIEW is {value!r}: {error}") from error
        is_plain = callable(view) and not isinstance(view, type) and not iscoroutinefunction(view)
        if view is not None and not is_plain:
            raise ImproperlyConfigured(
                f"VIEW is {value!r}; it takes a plain function of the request and the exception, "
                "or its dotted path"
            )
        return view


@functools.cache
def django_settings() -> Settings:
    return Settings()


def _forget_settings(*, setting: str, **_: Any) -> None:
    if setting == "HOTCOUNT_RATELIMIT" or setting.startswith("RATELIMIT_"):
        django_settings.cache_clear()


setting_changed.connect(_forget_settings)  # override_settings() of tests.


def check_rate(rate: Any) -> None:
    if isinstance(rate, str) and "/" in rate and not is_none_at_all(rate):
        hotcount.Limiter("memory://", rate)


def is_none_at_all(rate: str) -> bool:
    return rate.partition("/")[0].strip() == "0"


def no_rate() -> Decision:
    """The refusal of a limit that admits nothing: "0/s"."""
    return Decision(False, 0, 0, None, 0.0, "blocked", django_settings().values["NAME"], 1.0)


class Limit:
    """One limit of a view."""

    def __init__(self, group: str, key: Any, rate: Any, method: Methods, cost: Any) -> None:
        self._group, self._cost = group, cost
        is_path = isinstance(key, str) and "." in key and ":" not in key
        # A dotted path is resolved at the first call: its module may still be being imported.
        self._find = functools.partial(_call, key) if is_path else named_key("key", key, KEYS)
        self._rate = rate
        self._methods = [method] if isinstance(method, str) else method
        # Limits of a group for different methods count apart.
        self._scope = (group,) if method is None else (group, *sorted(self._methods or ()))

    def hit_now(self, request: HttpRequest, *, takes: bool = True) -> Decision | None:
        """takes=False: the decision on the next hit, which is not taken."""
        hit = self._hit(request)
        if hit is None or isinstance(hit, Decision):
            return hit
        if takes:
            return limits_of(request).take_now([hit], django_settings().values["TIMEOUT"])
        limiter, key, cost, rate = hit
        return face(hotcount.Limiter, limiter).test(key, cost, rate=rate)

    async def hit_soon(self, request: HttpRequest, *, takes: bool = True) -> Decision | None:
        """hit_now() without blocking the loop."""
        # The first read of request.user queries the database, which would block the loop.
        if self._find in (_by_user, _by_user_or_ip) and hasattr(request, "auser"):
            request.user = await request.auser()
        hit = self._hit(request)
        if hit is None or isinstance(hit, Decision):
            return hit
        if takes:
            return await limits_of(request).take_soon([hit], django_settings().values["TIMEOUT"])
        limiter, key, cost, rate = hit
        return await face(aio.Limiter, limiter).test(key, cost, rate=rate)

    def _hit(self, request: HttpRequest) -> Any:
        """The hit of a request; None: it has no limit; a refusal if the rate is 0."""
        if not django_settings().values["ENABLE"]:
            return None
        rate = self._rate
        if isinstance(rate, str) and "/" not in rate:
            rate = _call(rate, self._group, request)
        elif callable(rate):
            rate = rate(self._group, request)
        if rate is None:
            return None
        if isinstance(rate, tuple) and len(rate) == 2 and all(isinstance(n, int) for n in rate):
            rate = f"{rate[0]}/{rate[1]}s"  # (count, seconds), as django-ratelimit has it.
        rule = Rule(
            django_settings().limiter,
            self._find,
            rate=rate,
            cost=self._cost,
            methods=self._methods,
            scope=self._scope,
        )
        if rule.skips(request.method):
            return None
        if isinstance(rate, str) and is_none_at_all(rate):
            limits_of(request).hear(no_rate())
            return no_rate()
        cost = self._cost(self._group, request) if callable(self._cost) else self._cost
        return rule.to_hit(self._find(self._group, request), cost, rate)


def _call(path: str, group: str, request: HttpRequest) -> Any:
    """Calls the function of a dotted path."""
    try:
        function = import_string(path)
    except ImportError as error:
        raise ConfigError(f"there is no function {path!r}: {error}") from error
    return function(group, request)


def limits_of(request: HttpRequest) -> RequestLimits:
    """The limits that the request has met so far."""
    found: RequestLimits | None = getattr(request, "_hotcount_limits", None)
    if found is None:
        found = request._hotcount_limits = RequestLimits()
    return found


def by_ip(group: str, request: HttpRequest) -> str:
    peer = request.META.get("REMOTE_ADDR") or None
    return django_settings().addresses.find(peer, request.META.get("HTTP_X_FORWARDED_FOR", ""))


def _by_user(group: str, request: HttpRequest) -> str:
    return str(request.user.pk)


def _by_user_or_ip(group: str, request: HttpRequest) -> str:
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        return f"user:{user.pk}"
    return f"ip:{by_ip(group, request)}"


KEYS: dict[str, Callable[..., Any]] = {
    "ip": by_ip,
    "user": _by_user,
    "user_or_ip": _by_user_or_ip,
    "header:": lambda name: lambda group, request: request.headers.get(name, ""),
    "get:": lambda name: lambda group, request: request.GET.get(name, ""),
    "post:": lambda name: lambda group, request: request.POST.get(name, ""),
}
