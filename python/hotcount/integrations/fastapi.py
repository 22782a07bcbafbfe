"""Limits of FastAPI and Starlette applications. Needs Starlette, which FastAPI brings.

Example::

    app = FastAPI()
    install(app)

    @app.post("/login", dependencies=[Depends(RateLimiter("redis://localhost", "5/minute"))])
    async def login(): ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketState

from hotcount._types import Seconds
from hotcount.errors import ConfigError, LimitExceeded
from hotcount.integrations._web import (
    Addresses,
    Headers,
    Rule,
    check_style,
    limiter_of,
    to_headers,
    to_message,
)
from hotcount.integrations.asgi import RateLimitMiddleware, key_of, limits_of
from hotcount.limiter import Algorithm, OnError
from hotcount.results import Decision

__all__ = [
    "RateLimitExceeded",
    "RateLimitMiddleware",
    "RateLimiter",
    "install",
    "limit_exceeded_handler",
]


class RateLimitExceeded(HTTPException, LimitExceeded):
    """A refused request: status 429, which FastAPI answers by itself. `decision` says why."""

    def __init__(self, decision: Decision) -> None:
        LimitExceeded.__init__(self, decision)
        headers = to_headers(decision, "both", 429)
        HTTPException.__init__(self, 429, to_message(decision), headers)


def install(app: Starlette, *, headers: Headers = "both") -> None:
    """Answers LimitExceeded with status 429, and puts the headers of limits on every response.

    Call it once, before the application starts. It serves the dependency RateLimiter, and functions
    that Limiter.limit decorates.

    Args:
        app: A FastAPI or Starlette application.
        headers: "both", "ietf" (RateLimit, RateLimit-Policy), "legacy" (X-RateLimit) or "none".
    """
    if app.middleware_stack is not None:
        raise ConfigError("install() comes before the application has started")
    style = check_style(headers)
    for refusal in (RateLimitExceeded, LimitExceeded):
        app.add_exception_handler(refusal, limit_exceeded_handler)
    # Around all of the stack: Starlette's own middleware, which is outside of those that
    # add_middleware() adds, writes the response of an unhandled error.
    build = app.build_middleware_stack

    def build_with_limits() -> ASGIApp:
        return RateLimitMiddleware(build(), headers=style)

    app.build_middleware_stack = build_with_limits  # type: ignore[method-assign]


async def limit_exceeded_handler(connection: Any, error: Exception) -> Any:
    """The answer to a LimitExceeded: 429 with the decision's headers and a JSON "detail".

    For applications that register it by themselves: app.add_exception_handler(LimitExceeded,
    limit_exceeded_handler). Decisions then stand in the headers of refusals alone.
    """
    assert isinstance(error, LimitExceeded)
    decision: Decision = error.decision
    limits_of(connection.scope).hear(decision)
    message = to_message(decision)
    if isinstance(connection, WebSocket):
        extensions = connection.scope.get("extensions", {})
        accepted = connection.application_state == WebSocketState.CONNECTED
        if accepted or "websocket.http.response" not in extensions:
            await connection.close(1008, message)
            return None
    headers = to_headers(decision, "both", 429)
    return JSONResponse({"detail": message}, status_code=429, headers=headers)


class RateLimiter:
    """A dependency that is a hit: a refused request is answered with 429, its function not called.

    Depends(RateLimiter(...)) on a route, a router or the application; its value is the Decision. It
    works on WebSocket routes, where it decides on the handshake. A refusal raises
    RateLimitExceeded. With install() the headers stand on every response, without it on refusals.

    Args:
        store: A Redis, Memory or Database of either face, its URL, or a Limiter. It is never waited
            for in the loop. Objects over one store with one name and equal limits share their
            counts, unless they have scopes of their own.
        limits: A rate such as "100/minute", several, of which a request takes all or none, or a
            function of the request that returns them, as for plans. None is a Limiter's own.
        key_func: The client of a request: "ip", "user_or_ip" (request.user of an authentication
            middleware), "path", "header:NAME", or a function of the request, plain or async, that
            returns str, bytes or a tuple of them.
        cost: The cost of a request, 1 or more; also a function of the request.
        exempt_when: A function of the request, plain or async: true lets the request pass.
        methods: The HTTP methods that count; None is all.
        scope: A first part of the key: different scopes count apart.
        trusted_proxies: Addresses and networks of the proxies whose X-Forwarded-For is believed,
            and "unix". Without them "ip" is the peer of the connection.
        ipv6_prefix: How many bits of an IPv6 address count, 1 to 128.
        enabled: False passes all requests, as tests want it. It may be changed at any time.
        name: Part of the keys and of the headers.
        algorithm, on_error: As in hotcount.Limiter.
        timeout: Seconds for the hit; None is the store's.

    Raises:
        ConfigError: An option has a bad value; the message names it.
        TypeError: An option has a wrong type.
    """

    def __init__(
        self,
        store: Any,
        limits: Any = None,
        *,
        key_func: Any = "ip",
        cost: Any = 1,
        exempt_when: Callable[[Any], Any] | None = None,
        methods: Collection[str] | None = None,
        scope: str | None = None,
        trusted_proxies: Iterable[str] = (),
        ipv6_prefix: int = 64,
        enabled: bool = True,
        name: str = "web",
        algorithm: Algorithm = "gcra",
        on_error: OnError = "raise",
        timeout: Seconds | None = None,
    ) -> None:
        chosen = key_of(key_func, Addresses(trusted_proxies, ipv6_prefix))
        if isinstance(key_func, str):
            by_scope = chosen

            def chosen(connection: HTTPConnection) -> Any:
                return by_scope(connection.scope)

        limiter, rate = limiter_of(store, limits, name, algorithm, on_error)
        self._rule = Rule(
            limiter,
            chosen,
            rate=rate,
            cost=cost,
            methods=methods,
            exempt=exempt_when,
            scope=() if scope is None else (scope,),
        )
        self.enabled = enabled
        self._timeout = timeout

    async def __call__(self, connection: HTTPConnection) -> Decision | None:
        """The decision on this request; None: the limit does not apply to it."""
        scope = connection.scope
        if not self.enabled:
            return None
        if scope["type"] == "http" and self._rule.skips(scope.get("method")):
            return None
        hit = await self._rule.hit_soon(connection)
        if hit is None:
            return None
        decision = await limits_of(scope).take_soon([hit], self._timeout)
        if not decision:
            raise RateLimitExceeded(decision)
        return decision
