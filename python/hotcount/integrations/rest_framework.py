"""Throttles of Django REST framework on hotcount's limiters. Needs Django REST framework.

The names, rates and scopes are those of rest_framework.throttling, so that a switch is an import.
The store stands in HOTCOUNT_RATELIMIT (hotcount.integrations.django), whose middleware puts the
headers on every response. A request that one throttle refuses spends nothing of the others.

Example::

    # settings.py
    REST_FRAMEWORK = {
        "DEFAULT_THROTTLE_CLASSES": ["hotcount.integrations.rest_framework.UserRateThrottle"],
        "DEFAULT_THROTTLE_RATES": {"user": "100/min", "anon": "10/min"},
    }
"""

from __future__ import annotations

from typing import Any

from rest_framework.throttling import (
    AnonRateThrottle as _AnonRateThrottle,
)
from rest_framework.throttling import (
    ScopedRateThrottle as _ScopedRateThrottle,
)
from rest_framework.throttling import (
    SimpleRateThrottle,
)
from rest_framework.throttling import (
    UserRateThrottle as _UserRateThrottle,
)

from hotcount.integrations._django import by_ip, django_settings, is_none_at_all, limits_of, no_rate
from hotcount.integrations._web import Rule
from hotcount.results import Decision

__all__ = ["AnonRateThrottle", "RateThrottle", "ScopedRateThrottle", "UserRateThrottle"]


class RateThrottle(SimpleRateThrottle):
    """A throttle whose subclass says whom a request counts for: get_cache_key().

    rate, such as "5/min" or "10 per hour; 100 per day", or scope, a name in
    DEFAULT_THROTTLE_RATES, say how many. A get_cache_key() of None lets the request pass.
    """

    decision: Decision | None = None

    def parse_rate(self, rate: str | None) -> tuple[Any, Any]:
        """The rate as it is: hotcount reads it."""
        return (None, None) if rate is None else (rate, rate)

    def get_ident(self, request: Any) -> str:
        """The client's address, by TRUSTED_PROXIES and not by NUM_PROXIES."""
        return by_ip("", request)

    def allow_request(self, request: Any, view: Any) -> bool:
        """Takes a hit, unless another throttle has refused this request."""
        if self.rate is None or not django_settings().values["ENABLE"]:
            return True
        key = self.get_cache_key(request, view)
        inner = getattr(request, "_request", request)
        if key is None or getattr(inner, "_hotcount_throttled", False):
            return True
        limits = limits_of(inner)
        if is_none_at_all(self.rate):
            self.decision = no_rate()
            limits.hear(self.decision)
        else:
            hit = Rule(django_settings().limiter, self.get_cache_key).to_hit(key, 1, self.rate)
            assert hit is not None
            self.decision = limits.take_now([hit], django_settings().values["TIMEOUT"])
        inner._hotcount_throttled = not self.decision
        return self.decision.allowed

    def wait(self) -> float | None:
        """Seconds until the same request would be admitted."""
        return None if self.decision is None else self.decision.retry_after


class AnonRateThrottle(RateThrottle, _AnonRateThrottle):
    """Limits requests without a user, by address."""


class UserRateThrottle(RateThrottle, _UserRateThrottle):
    """Limits requests by user, and anonymous requests by address."""


class ScopedRateThrottle(RateThrottle, _ScopedRateThrottle):
    """Limits views that have a throttle_scope, by user or address."""

    def allow_request(self, request: Any, view: Any) -> bool:
        """Takes a hit at the rate of the view's scope."""
        self.scope = getattr(view, self.scope_attr, None)
        if not self.scope:
            return True
        self.rate = self.get_rate()
        return RateThrottle.allow_request(self, request, view)
