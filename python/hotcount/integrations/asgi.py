"""Limits for every ASGI application: Starlette, FastAPI, Quart, Litestar, Django.

    app = RateLimitMiddleware(app, "redis://localhost", ["100/minute", "1000/hour"])

Needs nothing beside hotcount.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from contextlib import suppress
from typing import Any

from hotcount._limit import heard_by
from hotcount._types import Seconds
from hotcount.errors import ConfigError, LimitExceeded
from hotcount.integrations._web import (
    Addresses,
    Headers,
    RequestLimits,
    Rule,
    check_style,
    limiter_of,
    named_key,
    to_headers,
    to_message,
)
from hotcount.limiter import Algorithm, OnError
from hotcount.results import Decision

__all__ = ["RateLimitMiddleware"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Where a request's limits stand in its scope.
LIMITS = "hotcount.limits"


def limits_of(scope: Scope) -> RequestLimits:
    """The limits that the request has met so far."""
    limits: RequestLimits = scope.setdefault(LIMITS, RequestLimits())
    return limits


def header_of(scope: Scope, name: str) -> str:
    """The first value of a request's header, which applications read; empty for none."""
    return next(iter(headers_of(scope, name)), "")


def headers_of(scope: Scope, name: str) -> list[str]:
    """All values of a request's header."""
    wanted = name.lower().encode("latin-1")
    headers = scope.get("headers", ())
    return [value.decode("latin-1") for key, value in headers if key.lower() == wanted]


def key_of(key: Any, addresses: Addresses) -> Callable[..., Any]:
    """The key function of a scope that a name stands for, or the function itself."""

    def by_address(scope: Scope) -> str:
        client = scope.get("client")
        forwarded = ",".join(headers_of(scope, "x-forwarded-for"))
        return addresses.find(client[0] if client else None, forwarded)

    def by_user(scope: Scope) -> str:
        user = scope.get("user")
        name = None
        with suppress(AttributeError, NotImplementedError):
            name = user.identity if user is not None and user.is_authenticated else None
        return f"user:{name}" if name is not None else f"ip:{by_address(scope)}"

    return named_key(
        "key_func",
        key,
        {
            "ip": by_address,
            "user_or_ip": by_user,
            "path": lambda scope: scope["path"],
            "header:": lambda name: lambda scope: header_of(scope, name),
        },
    )


class RateLimitMiddleware:
    """Limits HTTP requests and WebSocket handshakes, and tells each client what it has left.

    The headers stand on every response of a request that has met a limit, also on 401, 404 and 500,
    and those of limits further in, such as decorators and dependencies of hotcount, as well. A
    LimitExceeded that the application raises before its response starts is answered like a refusal.

    Args:
        app: The application.
        store: A Redis, Memory or Database of either face, its URL, or a Limiter. None: no limit of
            its own; headers and answers alone.
        default_limits: Rates such as "100/minute", of which a request takes all or none; or a
            function of the ASGI scope that returns them, as for plans. None is a Limiter's own.
        key_func: The client of a request: "ip", "user_or_ip" (scope["user"] of an authentication
            middleware), "path", "header:NAME", or a function of the scope, plain or async, that
            returns str, bytes or a tuple of them.
        exempt: Paths that are not limited, or a function of the scope, plain or async: true lets
            the request pass.
        cost: The cost of a request, 1 or more; also a function of the scope.
        methods: The HTTP methods that count; None is all. A handshake has none and always counts.
        trusted_proxies: Addresses and networks of the proxies whose X-Forwarded-For is believed,
            and "unix". Without them "ip" is the peer of the connection.
        ipv6_prefix: How many bits of an IPv6 address count, 1 to 128.
        headers: "both", "ietf" (RateLimit, RateLimit-Policy), "legacy" (X-RateLimit) or "none".
        refuse: A function of the scope and the decision that returns the ASGI application of a
            refusal, plain or async. None: status 429 with a JSON object that has "detail".
        enabled: False passes all requests on, as tests want it.
        name: Part of the keys and of the headers.
        algorithm, on_error: As in hotcount.Limiter.
        timeout: Seconds for the hit; None is the store's.

    Raises:
        ConfigError: An option has a bad value; the message names it.
        TypeError: An option has a wrong type.
    """

    def __init__(
        self,
        app: App,
        store: Any = None,
        default_limits: Any = None,
        *,
        key_func: Any = "ip",
        exempt: Callable[[Scope], Any] | Collection[str] | None = None,
        cost: Any = 1,
        methods: Collection[str] | None = None,
        trusted_proxies: Iterable[str] = (),
        ipv6_prefix: int = 64,
        headers: Headers = "both",
        refuse: Callable[[Scope, Decision], Any] | None = None,
        enabled: bool = True,
        name: str = "web",
        algorithm: Algorithm = "gcra",
        on_error: OnError = "raise",
        timeout: Seconds | None = None,
    ) -> None:
        addresses = Addresses(trusted_proxies, ipv6_prefix)
        self.app = app
        self._rule: Rule | None = None
        if store is not None:
            limiter, rate = limiter_of(store, default_limits, name, algorithm, on_error)
            self._rule = Rule(
                limiter,
                key_of(key_func, addresses),
                rate=rate,
                cost=cost,
                methods=methods,
                exempt=exempt if exempt is None or callable(exempt) else _paths(exempt),
            )
        elif default_limits is not None:
            raise ConfigError("default_limits needs a store")
        self._style = check_style(headers)
        self._refuse = refuse or refusal
        self._enabled = enabled
        self._timeout = timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] not in ("http", "websocket") or not self._enabled:
            return await self.app(scope, receive, send)
        limits = limits_of(scope)
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            kind = message["type"]
            if kind in ("http.response.start", "websocket.http.response.start"):
                started = True
                if limits.is_refused(message["status"]):
                    await limits.give_back_soon(self._timeout)
                add_headers(message, to_headers(limits.decision, self._style, message["status"]))
            elif kind in ("websocket.accept", "websocket.close"):
                started = True
            await send(message)

        rule = self._rule
        if rule is not None and not (scope["type"] == "http" and rule.skips(scope.get("method"))):
            hit = await rule.hit_soon(scope)
            if hit is not None:
                decision = await limits.take_soon([hit], self._timeout)
                if not decision:
                    return await self._answer(decision, scope, receive, send_with_headers)
        token = heard_by.set(limits.hear)
        try:
            await self.app(scope, receive, send_with_headers)
        except LimitExceeded as error:
            if started:
                raise
            limits.hear(error.decision)
            await self._answer(error.decision, scope, receive, send_with_headers)
        finally:
            heard_by.reset(token)

    async def _answer(self, decision: Decision, scope: Scope, receive: Receive, send: Send) -> None:
        await limits_of(scope).give_back_soon(self._timeout)
        if scope["type"] == "websocket" and "websocket.http.response" not in scope.get(
            "extensions", {}
        ):
            # The server answers the handshake with 403: ASGI has no other status without the
            # extension.
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": to_message(decision)})
            return
        app = self._refuse(scope, decision)
        if hasattr(app, "__await__"):
            app = await app
        if not callable(app):
            raise ConfigError(f"refuse returned {app!r}; it takes an ASGI application")
        await app(scope, receive, send)


def _paths(paths: Collection[str]) -> Callable[[Scope], bool]:
    if isinstance(paths, str):
        raise TypeError(f"exempt must be several paths, not one str: [{paths!r}]")
    exempt = frozenset(paths)

    def is_exempt(scope: Scope) -> bool:
        return scope["path"] in exempt

    return is_exempt


def add_headers(message: Message, headers: dict[str, str]) -> None:
    """Puts them in a response's start, in place of others of these names."""
    if not headers:
        return
    new = {key.lower().encode(): value.encode("latin-1") for key, value in headers.items()}
    kept = [one for one in message.get("headers", ()) if one[0].lower() not in new]
    message["headers"] = [*kept, *new.items()]


def refusal(scope: Scope, decision: Decision) -> App:
    """The application that answers 429 to a request or a handshake."""
    body = json.dumps({"detail": to_message(decision)}).encode()
    prefix = "websocket." if scope["type"] == "websocket" else ""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if prefix:
            await receive()
        fields = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        start = {"type": f"{prefix}http.response.start", "status": 429, "headers": fields}
        await send(start)
        await send({"type": f"{prefix}http.response.body", "body": body})

    return answer
