"""Limits of FastAPI and Starlette applications.

    app = FastAPI()
    install(app)
    per_address = RateLimit(hotcount.Limiter("redis://localhost", "5/minute", name="login"))

    @app.post("/login", dependencies=[Depends(per_address)])
    async def login(): ...

Needs Starlette, which FastAPI brings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from hotcount._types import Seconds
from hotcount.errors import ConfigError, LimitExceeded
from hotcount.integrations._web import (
    Addresses,
    Headers,
    Rule,
    check_style,
    to_headers,
    to_message,
)
from hotcount.integrations.asgi import RateLimitMiddleware, key_of, limits_of
from hotcount.limiter import LimiterBase
from hotcount.results import Decision

__all__ = ["RateLimit", "RateLimitMiddleware", "install", "limit_exceeded_handler"]


def install(app: Starlette, *, headers: Headers = "both") -> None:
    """Answers LimitExceeded with status 429, and puts the headers of limits on every response.

    Call it once, before the application starts. It serves the dependency RateLimit, and functions
    that Limiter.limit decorates.

    Args:
        app: A FastAPI or Starlette application.
        headers: "both", "ietf" (RateLimit, RateLimit-Policy), "legacy" (X-RateLimit-*) or "none".
    """
    if app.middleware_stack is not None:
        raise ConfigError("install() comes before the application has started")
    style = check_style(headers)
    app.add_exception_handler(LimitExceeded, limit_exceeded_handler)
    # Around all of the stack: Starlette's own middleware, which is outside of those that
    # add_middleware() adds, writes the response of an error that nobody handles.
    build = app.build_middleware_stack

    def build_with_limits() -> ASGIApp:
        return RateLimitMiddleware(build(), headers=style)

    app.build_middleware_stack = build_with_limits  # type: ignore[method-assign]


async def limit_exceeded_handler(connection: Any, error: Exception) -> Response:
    """The answer to a LimitExceeded: 429 with the decision's headers and a JSON "detail".

    For applications that register it by themselves: app.add_exception_handler(LimitExceeded,
    limit_exceeded_handler). Decisions then stand in the headers of refusals alone.
    """
    assert isinstance(error, LimitExceeded)
    decision: Decision = error.decision
    limits_of(connection.scope).hear(decision)
    headers = to_headers(decision, "both", 429)
    response = JSONResponse({"detail": to_message(decision)}, status_code=429, headers=headers)
    if isinstance(connection, WebSocket):
        if "websocket.http.response" in connection.scope.get("extensions", {}):
            await connection.send_denial_response(response)
        else:
            await connection.close(1008, to_message(decision))
    return response


class RateLimit:
    """A dependency that is a hit: a refused request is answered with 429, its function not called.

    Depends(RateLimit(...)) on a route, a router or the application; its value is the Decision. It
    works on WebSocket routes, where it decides on the handshake. install() brings the answer.

    Args:
        limiter: A Limiter of either face; it is never waited for in the loop. Routes that share it
            share their limit, unless they have scopes of their own.
        key: Whom a request counts for: "ip", "user_or_ip" (request.user of an authentication
            middleware), "path", "header:NAME", or a function of the request, plain or async, that
            returns str, bytes or a tuple of them.
        rate: In place of the limiter's own, as for a plan; also a function of the request.
        cost: What a request takes, 1 or more; also a function of the request.
        methods: The HTTP methods that count; None is all.
        exempt: A function of the request, plain or async: true lets the request pass.
        scope: A first part of the key. Two RateLimits of one limiter with different scopes count
            apart.
        trusted_proxies: Addresses and networks of the proxies whose X-Forwarded-For is believed,
            and "unix". Without them "ip" is the peer of the connection.
        ipv6_prefix: How many bits of an IPv6 address count, 1 to 128.
        enabled: False passes all requests, as tests want it. It may be changed at any time.
        timeout: Seconds for the hit; None is the store's.

    Raises:
        ConfigError: An option has a bad value; the message names it.
        TypeError: An option has a wrong type.
    """

    def __init__(
        self,
        limiter: LimiterBase,
        *,
        key: Any = "ip",
        rate: Any = None,
        cost: Any = 1,
        methods: Collection[str] | None = None,
        exempt: Callable[[Any], Any] | None = None,
        scope: str | None = None,
        trusted_proxies: Iterable[str] = (),
        ipv6_prefix: int = 64,
        enabled: bool = True,
        timeout: Seconds | None = None,
    ) -> None:
        chosen = key_of(key, Addresses(trusted_proxies, ipv6_prefix))
        if isinstance(key, str):
            by_scope = chosen

            def chosen(connection: HTTPConnection) -> Any:
                return by_scope(connection.scope)

        self._rule = Rule(
            limiter,
            chosen,
            rate=rate,
            cost=cost,
            methods=methods,
            exempt=exempt,
            scope=() if scope is None else (scope,),
        )
        self.enabled = enabled
        self._timeout = timeout

    async def __call__(self, connection: HTTPConnection) -> Decision | None:
        """The decision on this request; None: the limit leaves it alone."""
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
            raise LimitExceeded(decision)
        return decision
