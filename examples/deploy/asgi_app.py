"""wsgi_app.py for uvicorn: uvicorn --factory asgi_app:make_app, one process for each port."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import hotcount
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from hotcount import aio
from hotcount.integrations.prometheus import Collector
from prometheus_client import CollectorRegistry, start_http_server

AWAY = (
    hotcount.UnavailableError,
    hotcount.DeadlineError,
    hotcount.OutcomeUnknownError,
    hotcount.CapacityError,
)


async def away(request: Request, error: Exception) -> JSONResponse:
    # The error's text names servers, so it goes to the log and not to the client.
    logging.getLogger("app").warning("%s: %s", request.url.path, error)
    return JSONResponse({"detail": "try again later"}, 503, {"Retry-After": "1"})


def make_app() -> FastAPI:
    logging.basicConfig(level=logging.INFO)
    database = aio.connect_database(os.environ["DATABASE_URL"])
    store = aio.connect_store(os.environ["REDIS_URL"])
    votes = aio.Votes(database, missing_items="create")
    views = aio.WriteBehindCounter(database, store)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        registry = CollectorRegistry()
        registry.register(Collector(votes, views))
        # In a thread: a scrape waits for the database, which would block the event loop.
        start_http_server(int(os.environ.get("METRICS_PORT", "9101")), registry=registry)
        yield
        # After SIGTERM and the last request: sends the views that are only in this process.
        await views.aclose()
        await votes.aclose()
        await store.aclose()
        await database.aclose()

    app = FastAPI(lifespan=lifespan)
    for error in AWAY:
        app.add_exception_handler(error, away)

    @app.get("/readyz")
    async def readyz() -> Response:
        ready = await asyncio.gather(database.ready(timeout=2), store.ready(timeout=2))
        return Response(status_code=200 if all(ready) else 503)

    @app.post("/likes/{item}/{user}")
    async def like(item: int, user: int) -> dict[str, int]:
        return {"value": (await votes.cast(item, user)).value}

    @app.post("/views/{page}")
    async def view(page: str) -> dict[str, int]:
        await views.add(page, ack="local")
        return {"pid": os.getpid()}

    return app
