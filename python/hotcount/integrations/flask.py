"""Limits of Flask applications, with the names and arguments of Flask-Limiter. Needs Flask.

A request meets all of its limits in one step: a refusal spends nothing of the others. Differences
to Flask-Limiter: headers are on; a storage must be named; the strategy is 'gcra', which has no
windows; 'fixed-window', 'moving-window' and 'sliding-window-counter' work too.

Example::

    limiter = Limiter(get_remote_address, app=app, storage_uri="redis://localhost:6379",
                      default_limits=["200/day", "50/hour"])

    @app.get("/slow")
    @limiter.limit("1/day")
    def slow(): ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, Union, cast

from flask import Blueprint, Flask, Response, current_app, has_request_context, request
from werkzeug.exceptions import TooManyRequests

import hotcount
from hotcount._limit import heard_by
from hotcount._types import Seconds
from hotcount.batches import Values
from hotcount.errors import ConfigError, HotcountError, LimitExceeded
from hotcount.integrations._web import (
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

__all__ = ["Limiter", "RateLimitExceeded", "forwarded_address", "get_remote_address", "install"]

View = TypeVar("View", bound=Union[Callable[..., Any], Blueprint])
LimitValue = Union[str, hotcount.Rate, Callable[[], Any]]
KeyFunction = Callable[[], Any]

STRATEGIES: dict[str, Any] = {
    "fixed-window": "fixed_window",
    "moving-window": "sliding_log",
    "sliding-window-counter": "sliding_window",
}


PEERS = Addresses()


def install(app: Flask) -> None:
    """Has jsonify() take batches and columns, as `votes.count_many(...)`, for lists.

    Limiter.init_app calls it. Single results, as a Cast or a Count, are JSON objects without it.

    Raises:
        ConfigError: The application's JSON provider has no `default`, which Flask's own has.
    """
    provider: Any = app.json
    before = getattr(provider, "default", None)
    if before is None:
        raise ConfigError(
            f"install: app.json, a {type(provider).__name__}, has no `default` function; call "
            "tolist() of batches"
        )

    def default(value: Any) -> Any:
        return value.tolist() if isinstance(value, Values) else before(value)

    provider.default = default


def get_remote_address() -> str:
    """The address of the peer, for key_func; of IPv6 its /64.

    Behind a proxy: forwarded_address, or werkzeug's ProxyFix.
    """
    return PEERS.find(request.remote_addr or "127.0.0.1", "")


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
        key_func: The client of a request: a function without arguments, called in the request,
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
        on_error: The outcome of a hit while Redis is unreachable: 'raise', 'open', 'closed' or
            'local', as in hotcount.Limiter.
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
        app: Flask | None = None,
        *,
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
        self._blueprints: dict[Any, list[_Limit]] = {}
        self._views: dict[Any, list[_Limit]] = {}
        self._exempt: set[Any] = set()
        self._filters: list[Callable[[], Any]] = []
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Reads the application's config, opens the store and limits its requests."""

        def chosen(name: str, otherwise: Any = None) -> Any:
            given = self._given[name]
            return app.config.get(f"RATELIMIT_{name}", otherwise) if given is None else given

        unknown = [
            name
            for name in app.config
            if name.startswith("RATELIMIT_") and name.removeprefix("RATELIMIT_") not in self._given
        ]
        if unknown:
            known = ", ".join(f"RATELIMIT_{name}" for name in self._given)
            raise ConfigError(f"the config has {unknown[0]}; hotcount takes {known}")
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
        with suppress(ConfigError):  # A JSON provider of the application's own.
            install(app)
        app.extensions["hotcount_limiter"] = self
        app.before_request(self._check_request)
        app.after_request(self._with_headers)
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
                without arguments that returns one, as for plans; None or "" is no limit.
            key_func: In place of the limiter's own.
            per_method: Whether each HTTP method counts apart.
            methods: The HTTP methods that count; None is all.
            error_message: The description of the error 429, or a function that makes it.
            exempt_when: A function without arguments: true lets the request pass.
            override_defaults: Whether the limits around it do not hold in addition, for the methods
                of this limit: around a view those of its blueprint, around these those of the
                blueprints that it is registered on, around these the default ones.
            cost: The cost of a request, 1 or more, or a function without arguments.
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
        """A limit that all its views share. options: as for limit()."""
        return self.limit(limit_value, scope=scope, **options)

    def exempt(self, view: View) -> View:
        """Frees a view, or the views of a blueprint, from all limits."""
        self._exempt.add(view)
        return view

    def request_filter(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Frees the requests for which the function returns true from all limits."""
        self._filters.append(function)
        return function

    def check(self) -> None:
        """Checks the limits of this request now, as once before its view."""
        self._check_request()

    @property
    def current_limit(self) -> Decision | None:
        """The decision that the response of this request tells; None: it has met no limit."""
        return _state().limits.decision if has_request_context() else None

    def _limit(self, one: _Limit, view: View) -> View:
        if isinstance(view, Blueprint):
            self._blueprints.setdefault(view, []).insert(0, one)
            return view
        if not callable(view):
            raise TypeError(f"limit() decorates views and blueprints, not {view!r}")

        self._views.setdefault(view, []).insert(0, one)

        @functools.wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            if not has_request_context():
                return view(*args, **kwargs)
            # As the view of a route it was checked with the other limits of the request.
            checked = _state().checked
            if one in checked:
                checked.remove(one)
            else:
                self._take([(one, ("function", f"{view.__module__}.{view.__qualname__}"))])
            return current_app.ensure_sync(view)(*args, **kwargs)

        return cast(View, limited)

    def _check_request(self) -> None:
        state = _state()
        if state.token is None:
            state.token = heard_by.set(state.limits.hear)
        endpoint = request.endpoint or ""
        view = current_app.view_functions.get(endpoint)
        if view is None or endpoint == "static" or endpoint.endswith(".static"):
            return
        if request.method == "OPTIONS" and getattr(
            request.url_rule, "provide_automatic_options", False
        ):
            return  # Flask answers it, and no view.
        # The view and the functions that its decorators wrap.
        functions = [view]
        while (inner := getattr(functions[-1], "__wrapped__", None)) is not None:
            functions.append(inner)
        # A view of the application may have a dot in its endpoint too.
        names = [name for name in request.blueprints if name in current_app.blueprints]
        blueprints = [current_app.blueprints[name] for name in names]
        own = [one for each in functions for one in self._views.get(each, ())]
        state.checked += own
        if any(each in self._exempt for each in (*functions, *blueprints[:1])):
            return

        def counting(limits: Iterable[_Limit]) -> list[_Limit]:
            return [one for one in limits if one.counts(request.method)]

        limits = counting(own)
        of_blueprints = [self._blueprints.get(blueprint, []) for blueprint in blueprints]
        of_ancestors = [one for each in of_blueprints[1:] for one in each]
        for inherited in (*of_blueprints[:1], of_ancestors, self._default):
            if not any(one.override_defaults for one in limits):
                limits += counting(inherited)
        limits += counting(self._application)
        self._take([(one, ("endpoint", endpoint)) for one in limits])

    def _take(self, limits: list[tuple[_Limit, tuple[str, str]]]) -> None:
        if not self.enabled or not limits or any(passes() for passes in self._filters):
            return
        if self._limiter is None:
            raise ConfigError("this Limiter has no application: call init_app(app) first")
        hits, owners = [], []
        for one, place in limits:
            if not one.counts(request.method):
                continue
            hit = one.hit(self._limiter, self._key_func, place)
            if hit is not None:
                hits.append(hit)
                owners.append(one)
        if not hits:
            return
        decision = _state().limits.take_now(hits, self._timeout)
        if not decision:
            raise self._refusal(decision, self._refusing(hits, owners))

    def _refusing(self, hits: list[Any], owners: list[_Limit]) -> _Limit:
        """The limit that has refused. It tests each again if their messages may differ."""
        if len(hits) > 1 and any(one.error_message or one.on_breach for one in owners):
            with suppress(HotcountError):
                for (limiter, key, cost, rate), one in zip(hits, owners):
                    if not limiter.test(key, cost, rate=rate, timeout=self._timeout):
                        return one
        return owners[0]

    def _refusal(self, decision: Decision, one: _Limit | None) -> RateLimitExceeded:
        response = None
        for breach in (one.on_breach if one is not None else None, self._on_breach):
            if breach is not None and response is None:
                response = breach(decision)
        if response is not None:
            _state().limits.give_back_now(self._timeout)
        message = one.error_message if one is not None else None
        return RateLimitExceeded(decision, message() if callable(message) else message, response)

    def _answer(self, error: LimitExceeded) -> Any:
        # The error of a function that hotcount.Limiter.limit decorates, or of a reservation.
        _state().limits.hear(error.decision)
        return current_app.handle_user_exception(self._refusal(error.decision, None))

    def _with_headers(self, response: Response) -> Response:
        limits = _state().limits
        if limits.is_refused(response.status_code):
            limits.give_back_now(self._timeout)
        response.headers.update(to_headers(limits.decision, self._style, response.status_code))
        return response


class _Limit:
    """One limit, with the options of limit()."""

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

    def hit(self, limiter: hotcount.Limiter, key_func: KeyFunction, place: tuple[str, str]) -> Any:
        """The hit of this request; None: it is exempt. place: where it counts without a scope."""
        if self._exempt_when is not None and self._exempt_when():
            return None
        value = self._value() if callable(self._value) else self._value
        if not value:
            return None  # A plan without a limit.
        if self._scope is not None:
            place = ("scope", self._scope(place[1]) if callable(self._scope) else self._scope)
        rule = Rule(
            limiter,
            self._key_func or key_func,
            rate=value,
            cost=self._cost,
            scope=(*place, request.method) if self._per_method else place,
        )
        return rule.hit_now()


class _State:
    """The limits of a request, and those of its view that were checked before the view."""

    def __init__(self) -> None:
        self.limits = RequestLimits()
        self.checked: list[_Limit] = []
        self.token: Any = None


def _state() -> _State:
    # In the environment: flask.g is of the application's context, which requests may share.
    state: _State = request.environ.setdefault("hotcount.limits", _State())
    return state


def _hear_nothing(_: BaseException | None) -> None:
    token, _state().token = _state().token, None
    if token is not None:
        with suppress(ValueError):  # Of another context, as where a response is streamed.
            heard_by.reset(token)


def _texts(limits: Any) -> list[LimitValue]:
    """Limits as the config has them: one text, or several."""
    if limits is None:
        return []
    return [limits] if isinstance(limits, str) or callable(limits) else list(limits)
