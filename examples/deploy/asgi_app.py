"""The same for uvicorn: uvicorn --factory asgi_app:make_app, one process for each port."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from hotcount import aio
from hotcount.integrations.prometheus import Collector
from prometheus_client import CollectorRegistry, start_http_server


def make_app() -> FastAPI:
    database_url, redis_url = os.environ["DATABASE_URL"], os.environ["REDIS_URL"]
    votes = aio.Votes(database_url, missing_items="create")
    views = aio.WriteBehindCounter(database_url, redis_url)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        registry = CollectorRegistry()
        registry.register(Collector(votes, views))
        # In a thread of its own: a scrape waits for the database and must not hold the loop.
        start_http_server(int(os.environ.get("METRICS_PORT", "9101")), registry=registry)
        yield
        # After SIGTERM and the last request: sends the views that only this process has.
        await views.aclose()
        await votes.aclose()

    app = FastAPI(lifespan=lifespan)

    @app.post("/likes/{item}/{user}")
    async def like(item: int, user: int) -> dict[str, int]:
        return {"value": (await votes.cast(item, user)).value}

    @app.post("/views/{page}")
    async def view(page: str) -> dict[str, int]:
        await views.add(page, ack="local")
        return {"pid": os.getpid()}

    return app
