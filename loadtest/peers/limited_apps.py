"""The applications under web_limits.py's load: one route, whose limit admits every request.

    LIMITED_APP_URL=redis://... LIMITED_APP_WAY=hotcount \\
        gunicorn 'loadtest.peers.limited_apps:flask_app()'

LIMITED_APP_WAY names the limiter in front of the route, as each library's documents put it there:
"hotcount", "no limiter" or a peer. "with headers" after a peer's name asks it for its headers,
which hotcount always sends. The client is the peer's address, so that all requests meet one key.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from starlette.requests import Request  # FastAPI looks for both among the names of this module.
from starlette.responses import Response

BARE = "no limiter"
HOTCOUNT = "hotcount"
WITH_HEADERS = " with headers"
PER_MINUTE = 1_000_000
RATE = f"{PER_MINUTE}/minute"
TIMEOUT_S = 30.0

URL = os.environ.get("LIMITED_APP_URL", "")
WAY = os.environ.get("LIMITED_APP_WAY", "")
PEER = WAY.removesuffix(WITH_HEADERS)


def store() -> Any:
    import hotcount

    return hotcount.Redis(URL, timeout=TIMEOUT_S)


def fastapi_app() -> Any:
    from fastapi import Depends, FastAPI

    app = FastAPI()
    dependencies = []
    if PEER == "slowapi":
        return slowapi_app(app)
    if PEER == HOTCOUNT:
        from hotcount.integrations.fastapi import RateLimiter, install

        install(app)
        dependencies.append(Depends(RateLimiter(store(), RATE)))
    elif PEER == "fastapi-limiter":
        dependencies.append(Depends(fastapi_limiter()))

    @app.get("/", dependencies=dependencies)
    async def root() -> dict[str, str]:
        return {"said": "ok"}

    return app


def slowapi_app(app: Any) -> Any:
    from slowapi import Limiter, _rate_limit_exceeded_handler
    from slowapi.errors import RateLimitExceeded
    from slowapi.util import get_remote_address

    limiter = Limiter(
        key_func=get_remote_address, storage_uri=URL, headers_enabled=WAY.endswith(WITH_HEADERS)
    )
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)

    async def root(request: Request, response: Response) -> dict[str, str]:
        return {"said": "ok"}

    app.add_api_route("/", limiter.limit(RATE)(root))
    return app


def fastapi_limiter() -> Any:
    """Its bucket is one sorted set in Redis, with a member for each request of the last minute."""
    import redis
    import redis.asyncio
    from fastapi_limiter.depends import RateLimiter
    from pyrate_limiter import Duration, Limiter, Rate, RedisBucket

    rates, key = [Rate(PER_MINUTE, Duration.MINUTE)], "peer"
    with redis.Redis.from_url(URL) as connection:  # There is no loop yet in which to await.
        script = RedisBucket.init(rates, connection, key).script_hash
    connection = redis.asyncio.Redis.from_url(URL)
    return RateLimiter(limiter=Limiter(RedisBucket(rates, connection, key, script)))


def flask_app() -> Any:
    from flask import Flask

    app = Flask(__name__)
    limit: Any = None
    if PEER == HOTCOUNT:
        from hotcount.integrations.flask import Limiter, get_remote_address

        limit = Limiter(get_remote_address, app=app, store=store()).limit(RATE)
    elif PEER == "Flask-Limiter":
        from flask_limiter import Limiter as TheirLimiter
        from flask_limiter.util import get_remote_address as their_address

        limit = TheirLimiter(
            their_address,
            app=app,
            storage_uri=URL,
            headers_enabled=WAY.endswith(WITH_HEADERS),
        ).limit(RATE)

    def root() -> dict[str, str]:
        return {"said": "ok"}

    app.add_url_rule("/", view_func=limit(root) if limit is not None else root)
    return app


def django_app() -> Any:
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import JsonResponse
    from django.urls import path

    ours = PEER == HOTCOUNT
    settings.configure(
        SECRET_KEY="of a load test",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        MIDDLEWARE=["hotcount.integrations.django.RateLimitMiddleware"] if ours else [],
        HOTCOUNT_RATELIMIT={"STORE": store() if ours else None},
        CACHES={
            "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": URL}
        },
    )
    django.setup()

    def root(request: Any) -> JsonResponse:
        return JsonResponse({"said": "ok"})

    view: Any = root
    if ours:
        from hotcount.integrations.django import ratelimit

        view = ratelimit(key="ip", rate=RATE)(root)
    elif PEER == "django-ratelimit":
        from django_ratelimit.decorators import ratelimit as their_ratelimit

        view = their_ratelimit(key="ip", rate=f"{PER_MINUTE}/m")(root)
    sys.modules[__name__].urlpatterns = [path("", view)]  # type: ignore[attr-defined]
    return get_wsgi_application()
