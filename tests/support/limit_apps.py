"""One application in FastAPI, Flask and Django: the same routes with the same limits.

/two      2/minute for each X-User
/open     1,000/minute for each X-User, with on_error="open" as all of them
/denied   the same, then 401
/boom     the same, then an exception that nobody handles
/wrapped  a function that hotcount.Limiter.limit decorates, 1/minute
"""

import os
from typing import Any

import hotcount
from starlette.requests import Request  # FastAPI looks for it among the names of this module.

URL = os.environ.get("HOTCOUNT_TEST_URL", "memory://")
STORE: Any = hotcount.connect_store(URL, timeout=0.3) if URL.startswith("redis") else URL
WRAPPED = hotcount.Limiter(STORE, "1/minute", name="wrapped", on_error="open")


@WRAPPED.limit(key=lambda user: user)
def wrapped(user: str) -> str:
    return "wrapped"


def fastapi_app() -> Any:
    from fastapi import Depends, FastAPI, HTTPException
    from hotcount.integrations.fastapi import RateLimiter, install

    app = FastAPI()
    install(app)
    limiter = hotcount.Limiter(STORE, "1000/minute", name="web", on_error="open")

    def limit(scope: str, rate: str | None = None) -> Any:
        return [Depends(RateLimiter(limiter, rate, key_func="header:x-user", scope=scope))]

    @app.get("/two", dependencies=limit("two", "2/minute"))
    async def two() -> str:
        return "two"

    @app.get("/open", dependencies=limit("open"))
    async def opened() -> str:
        return "open"

    @app.get("/denied", dependencies=limit("denied"))
    def denied() -> str:
        raise HTTPException(401)

    @app.get("/boom", dependencies=limit("boom"))
    def boom() -> str:
        raise RuntimeError("boom")

    @app.get("/wrapped")
    def call_wrapped(request: Request) -> str:
        return wrapped(request.headers["x-user"])

    return app


def flask_app() -> Any:
    from flask import Flask, abort, request
    from hotcount.integrations.flask import Limiter

    app = Flask(__name__)
    limiter = Limiter(
        lambda: request.headers.get("X-User", ""),
        app=app,
        store=STORE,
        key_prefix="web",
        default_limits=["1000/minute"],
        on_error="open",
    )

    @app.get("/two")
    @limiter.limit("2/minute")
    def two() -> str:
        return "two"

    @app.get("/open")
    def opened() -> str:
        return "open"

    @app.get("/denied")
    def denied() -> str:
        abort(401)

    @app.get("/boom")
    def boom() -> str:
        raise RuntimeError("boom")

    @app.get("/wrapped")
    @limiter.exempt
    def call_wrapped() -> str:
        return wrapped(request.headers["X-User"])

    return app


def configure_django() -> None:
    import django
    from django.conf import settings

    if settings.configured:
        return
    settings.configure(
        SECRET_KEY="of a test",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="tests.support.limit_urls",
        MIDDLEWARE=["hotcount.integrations.django.RateLimitMiddleware"],
        INSTALLED_APPS=["rest_framework"],
        HOTCOUNT_RATELIMIT={"STORE": STORE, "NAME": "web", "ON_ERROR": "open"},
        REST_FRAMEWORK={
            "DEFAULT_THROTTLE_RATES": {"user": "5/min", "anon": "2/min", "reports": "1/day"},
            "UNAUTHENTICATED_USER": None,
        },
    )
    django.setup()


def django_wsgi() -> Any:
    configure_django()
    from django.core.wsgi import get_wsgi_application

    return get_wsgi_application()


def django_asgi() -> Any:
    configure_django()
    from django.core.asgi import get_asgi_application

    return get_asgi_application()
