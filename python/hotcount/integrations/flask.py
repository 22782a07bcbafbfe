"""Limits of Flask applications, with the names and arguments of Flask-Limiter.

    limiter = Limiter(get_remote_address, app=app, storage_uri="redis://localhost:6379",
                      default_limits=["200/day", "50/hour"])

    @app.get("/slow")
    @limiter.limit("1/day")
    def slow(): ...

A request meets all of its limits in one step: a refusal spends nothing of the others. Differences
to Flask-Limiter: headers are on; a storage must be named; the strategy is 'gcra', which has no
windows; 'fixed-window', 'moving-window' and 'sliding-window-counter' work too.

Needs Flask.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar, Union

from flask import Blueprint, Flask, Response, current_app, g, has_request_context, request
from werkzeug.exceptions import TooManyRequests

import hotcount
from hotcount._limit import heard_by
from hotcount._types import Seconds
from hotcount.errors import ConfigError, LimitExceeded
from hotcount.integrations._web import (
    HEADER_NAMES,
    Addresses,
    Headers,
    RequestLimits,
    Rule,
    check_style,
    to_headers,
    to_message,
)
from hotcount.limiter import OnError
from hotcount.results import Decision

__all__ = ["Limiter", "RateLimitExceeded", "forwarded_address", "get_remote_address"]

View = TypeVar("View", bound=Union[Callable[..., Any], Blueprint])
LimitValue = Union[str, hotcount.Rate, Callable[[], Any]]
KeyFunction = Callable[[], Any]

STRATEGIES: dict[str, Any] = {
    "fixed-window": "fixed_window",
    "moving-window": "sliding_log",
    "sliding-window-counter": "sliding_window",
}


def get_remote_address() -> str:
    """The address of the peer, for key_func. Behind a proxy: forwarded_address, or ProxyFix."""
    return request.remote_addr or "127.0.0.1"


def forwarded_address(trusted_proxies: Iterable[str], ipv6_prefix: int = 64) -> KeyFunction:
    """A key_func: the client's address as trusted proxies forward it.

    Args:
        trusted_proxies: Addresses and networks of the proxies whose X-Forwarded-For is believed,
            and "unix".
        ipv6_prefix: How many bits of an IPv6 address count, 1 to 128.
    """
    addresses = Addresses(trusted_proxies, ipv6_prefix)

    def find() -> str:
        return addresses.find(request.remote_addr, request.headers.get("X-Forwarded-For", ""))

    return find


class RateLimitExceeded(TooManyRequests):
    """The error 429 of a refused request, for app.errorhandler(429). `decision` says why."""

    def __init__(
        self, decision: Decision, description: str | None = None, response: Response | None = None
    ) -> None:
        super().__init__(description or to_message(decision), response)
        self.decision = decision


class Limiter:
    """Limits of an application's routes, blueprints and functions.

    Options that are left out come from the application's config: RATELIMIT_STORAGE_URI, _STRATEGY,
    _DEFAULT, _APPLICATION, _KEY_PREFIX, _HEADERS_ENABLED and _ENABLED.

    Args:
        key_func: Whom a request counts for: a function without arguments, called in the request,
            that returns str, bytes or a tuple of them. get_remote_address is one.
        app: The application; else call init_app.
        default_limits: The limits of each route that has none of its own, counted for each route.
        application_limits: Limits of all routes together.
        headers_enabled: Whether responses have headers; a str is their style: "both", "ietf" or
            "legacy".
        strategy: 'gcra' or another algorithm of hotcount.Limiter, or a strategy of Flask-Limiter.
        storage_uri: URL of the store. "memory://" counts in each process alone.
        store: A Redis, Memory or Database in place of storage_uri.
        key_prefix: Part of all keys and of the headers.
        on_error: What answers while Redis is away: 'raise', 'open', 'closed' or 'local', as in
            hotcount.Limiter.
        on_breach: A function of the Decision, called for each refusal. A Response that it returns
            is the answer.
        enabled: False lets all requests pass, as tests want it. It may be changed at any time.
        timeout: Seconds for the hits of a request; None is the store's.

    Raises:
        ConfigError: An option has a bad value; the message names it.
    """

    def __init__(
        self,
        key_func: KeyFunction,
        *,
        app: Flask | None = None,
        default_limits: Sequence[LimitValue] | None = None,
        application_limits: Sequence[LimitValue] | None = None,
        headers_enabled: bool | Headers | None = None,
        strategy: str | None = None,
        storage_uri: str | None = None,
        store: Any = None,
        key_prefix: str | None = None,
        on_error: OnError = "raise",
        on_breach: Callable[[Decision], Response | None] | None = None,
        enabled: bool | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        if not callable(key_func):
            raise TypeError(f"key_func must be a function, not {type(key_func).__name__}")
        self.enabled = True if enabled is None else enabled
        self._given = {
            "STORAGE_URI": store if store is not None else storage_uri,
            "STRATEGY": strategy,
            "DEFAULT": default_limits,
            "APPLICATION": application_limits,
            "KEY_PREFIX": key_prefix,
            "HEADERS_ENABLED": headers_enabled,
            "ENABLED": enabled,
        }
        self._key_func = key_func
        self._on_error: OnError = on_error
        self._on_breach = on_breach
        self._timeout = timeout
        self._limiter: hotcount.Limiter | None = None
        self._style: Headers = "both"
        self._application: list[_Limit] = []
        self._default: list[_Limit] = []
        self._blueprints: dict[str, list[_Limit]] = {}
        # By function and by the name of a blueprint.
        self._views: dict[Any, list[_Limit]] = {}
        self._exempt: set[Any] = set()
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Reads the application's config, opens the store and limits its requests."""

        def chosen(name: str, otherwise: Any = None) -> Any:
            given = self._given[name]
            return app.config.get(f"RATELIMIT_{name}", otherwise) if given is None else given

        store = chosen("STORAGE_URI")
        if store is None:
            raise ConfigError(
                "storage_uri is missing: give the URL of the store, or RATELIMIT_STORAGE_URI in "
                "the config. 'memory://' counts in each process alone"
            )
        strategy = chosen("STRATEGY", "gcra")
        self.enabled = bool(chosen("ENABLED", True))
        headers = chosen("HEADERS_ENABLED", True)
        self._style = check_style({True: "both", False: "none"}.get(headers, headers))
        self._limiter = hotcount.Limiter(
            store,
            "1/second",  # Each hit brings its own.
            algorithm=STRATEGIES.get(strategy, strategy),
            name=chosen("KEY_PREFIX", "flask"),
            on_error=self._on_error,
        )
        self._default = [_Limit(one) for one in _texts(chosen("DEFAULT"))]
        self._application = [
            _Limit(one, scope="application") for one in _texts(chosen("APPLICATION"))
        ]
        app.extensions["hotcount_limiter"] = self
        app.before_request(self._check_request)
        app.after_request(self._tell)
        app.teardown_request(_hear_nothing)
        app.register_error_handler(LimitExceeded, self._answer)

    def limit(
        self,
        limit_value: LimitValue,
        *,
        key_func: KeyFunction | None = None,
        per_method: bool = False,
        methods: Collection[str] | None = None,
        error_message: str | Callable[[], str] | None = None,
        exempt_when: Callable[[], bool] | None = None,
        override_defaults: bool = True,
        cost: int | Callable[[], int] = 1,
        scope: str | Callable[[str], str] | None = None,
        on_breach: Callable[[Decision], Response | None] | None = None,
    ) -> Callable[[View], View]:
        """Limits a view, each view of a blueprint, or a function that a request calls.

        Args:
            limit_value: Such as "5/minute", "10 per hour; 100 per day" or a Rate, or a function
                without arguments that returns one: a plan's.
            key_func: In place of the limiter's own.
            per_method: Whether each HTTP method counts apart.
            methods: The HTTP methods that count; None is all.
            error_message: The description of the error 429, or a function that makes it.
            exempt_when: A function without arguments: true lets the request pass.
            override_defaults: Whether the limits of the blueprint and the default ones do not hold
                in addition, for the methods of this limit.
            cost: What a request takes, 1 or more, or a function without arguments.
            scope: Views of one scope share the limit; a function gets the endpoint. None: each view
                counts apart.
            on_breach: In place of the limiter's own.
        """
        one = _Limit(
            limit_value,
            key_func,
            per_method=per_method,
            methods=methods,
            error_message=error_message,
            exempt_when=exempt_when,
            override_defaults=override_defaults,
            cost=cost,
            scope=scope,
            on_breach=on_breach,
        )
        return functools.partial(self._limit, one)

    def shared_limit(
        self, limit_value: LimitValue, scope: str | Callable[[str], str], **options: Any
    ) -> Callable[[View], View]:
        """A limit that all its views share. options: those of limit()."""
        return self.limit(limit_value, scope=scope, **options)

    def exempt(self, view: View) -> View:
        """Frees a view, or the views of a blueprint, from all limits."""
        self._exempt.add(view.name if isinstance(view, Blueprint) else view)
        return view

    def check(self) -> None:
        """Checks the limits of this request now, as once before its view."""
        self._check_request()

    @property
    def current_limit(self) -> Decision | None:
        """The decision that the response of this request tells; None: it has met no limit."""
        return _limits().decision if has_request_context() else None

    def _limit(self, one: _Limit, view: View) -> View:
        if isinstance(view, Blueprint):
            self._blueprints.setdefault(view.name, []).insert(0, one)
            return view
        if not callable(view):
            raise TypeError(f"limit() decorates views and blueprints, not {view!r}")

        self._views.setdefault(view, []).insert(0, one)

        @functools.wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            if not has_request_context():
                return view(*args, **kwargs)
            # As the view of a route it was checked with the other limits of the request.
            if one not in _checked():
                self._take([(one, f"{view.__module__}.{view.__qualname__}")])
            return current_app.ensure_sync(view)(*args, **kwargs)

        return limited  # type: ignore[return-value]

    def _check_request(self) -> None:
        heard_by.set(_limits().hear)
        endpoint = request.endpoint or ""
        view = current_app.view_functions.get(endpoint)
        if view is None or endpoint == "static" or endpoint.endswith(".static"):
            return
        # With what other decorators have wrapped, and what a decorator above the route has not.
        functions = [view]
        while (inner := getattr(functions[-1], "__wrapped__", None)) is not None:
            functions.append(inner)
        # Of a nested blueprint the name has those of its parents before it.
        blueprints = [name.rpartition(".")[2] for name in request.blueprints]
        if any(each in self._exempt for each in (*functions, *blueprints)):
            _checked().update(one for each in functions for one in self._views.get(each, ()))
            return

        def counting(limits: Iterable[_Limit]) -> list[_Limit]:
            return [one for one in limits if one.counts(request.method)]

        limits = counting(one for each in functions for one in self._views.get(each, ()))
        for inherited in (
            [one for name in blueprints for one in self._blueprints.get(name, ())],
            self._default,
        ):
            if not any(one.override_defaults for one in limits):
                limits += counting(inherited)
        self._take([(one, endpoint) for one in (*limits, *counting(self._application))])

    def _take(self, limits: list[tuple[_Limit, str]]) -> None:
        if not self.enabled or not limits:
            return
        if self._limiter is None:
            raise ConfigError("this Limiter has no application: call init_app(app) first")
        _checked().update(one for one, _ in limits)
        hits, owners = [], []
        for one, endpoint in limits:
            if not one.counts(request.method):
                continue
            hit = one.rule(self._limiter, self._key_func, endpoint).hit_now()
            if hit is not None:
                hits.append(hit)
                owners.append(one)
        if not hits:
            return
        decision = _limits().take_now(hits, self._timeout)
        if decision:
            return
        raise self._refusal(decision, owners)

    def _refusal(self, decision: Decision, owners: list[_Limit]) -> RateLimitExceeded:
        texts = [one for one in owners if one.error_message is not None]
        response = None
        for breach in (*(one.on_breach for one in owners), self._on_breach):
            if breach is not None and response is None:
                response = breach(decision)
        message = texts[0].error_message if texts else None
        return RateLimitExceeded(decision, message() if callable(message) else message, response)

    def _answer(self, error: LimitExceeded) -> Any:
        # Of a function that hotcount.Limiter.limit decorates.
        return current_app.handle_user_exception(self._refusal(error.decision, []))

    def _tell(self, response: Response) -> Response:
        headers = to_headers(_limits().decision, self._style, response.status_code)
        if headers:
            for name in HEADER_NAMES:
                response.headers.pop(name, None)
            response.headers.update(headers)
        return response


class _Limit:
    """What limit() was told."""

    def __init__(
        self,
        value: LimitValue,
        key_func: KeyFunction | None = None,
        *,
        per_method: bool = False,
        methods: Collection[str] | None = None,
        error_message: str | Callable[[], str] | None = None,
        exempt_when: Callable[[], bool] | None = None,
        override_defaults: bool = True,
        cost: int | Callable[[], int] = 1,
        scope: str | Callable[[str], str] | None = None,
        on_breach: Callable[[Decision], Response | None] | None = None,
    ) -> None:
        if not callable(value):
            hotcount.Limiter("memory://", value)  # ConfigError for a bad one, where it stands.
        if isinstance(methods, str):
            raise TypeError(f"methods must be several names, not one str: [{methods!r}]")
        self._value, self._key_func = value, key_func
        self._per_method = per_method
        self._methods = None if methods is None else {name.upper() for name in methods}
        self._exempt_when, self._cost, self._scope = exempt_when, cost, scope
        self.error_message, self.on_breach = error_message, on_breach
        self.override_defaults = override_defaults

    def counts(self, method: str) -> bool:
        """Whether it is a limit of this method."""
        return self._methods is None or method in self._methods

    def rule(self, limiter: hotcount.Limiter, key_func: KeyFunction, endpoint: str) -> Rule:
        """The limit of this request."""
        scope = self._scope(endpoint) if callable(self._scope) else self._scope or endpoint
        return Rule(
            limiter,
            self._key_func or key_func,
            rate=self._value,
            cost=self._cost,
            exempt=self._exempt_when,
            scope=(scope, request.method) if self._per_method else (scope,),
        )


def _hear_nothing(_: BaseException | None) -> None:
    heard_by.set(None)


def _limits() -> RequestLimits:
    if not hasattr(g, "_hotcount_limits"):
        g._hotcount_limits = RequestLimits()
    return g._hotcount_limits  # type: ignore[no-any-return]


def _checked() -> set[_Limit]:
    if not hasattr(g, "_hotcount_checked"):
        g._hotcount_checked = set()
    return g._hotcount_checked  # type: ignore[no-any-return]


def _texts(limits: Any) -> list[LimitValue]:
    """Limits as the config has them: one text, or several."""
    if limits is None:
        return []
    return [limits] if isinstance(limits, str) or callable(limits) else list(limits)
