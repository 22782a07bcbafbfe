"""A like button in FastAPI, with live counts over server-sent events.

    pip install . fastapi uvicorn    # in a clone of hotcount
    uvicorn --app-dir examples/fastapi app:app --workers 2 --timeout-graceful-shutdown 1

Open http://127.0.0.1:8000 in several windows. A cookie identifies a visitor. A visitor's like of
an item counts once, however often the request is sent. The environment variable DATABASE is the
URL of the database. Default: sqlite:///likes.db.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated

import hotcount
from fastapi import Cookie, FastAPI, Path, Response
from fastapi.responses import FileResponse
from fastapi.sse import EventSourceResponse
from hotcount import aio

NAMES = {1: "SQLite", 2: "PostgreSQL", 3: "MariaDB", 4: "Redis", 5: "Valkey"}
Item = Annotated[int, Path(ge=1, le=len(NAMES))]
Visitor = Annotated[str, Cookie(pattern="^[0-9a-f]{32}$")]
votes = aio.Votes(os.environ.get("DATABASE", "sqlite:///likes.db"), user_type=str)


now: dict[int, int] = {}
changed = asyncio.Condition()


async def watch() -> None:
    """Reads the counts every 0.2 s, once for all event streams of this process."""
    while True:
        with suppress(hotcount.HotcountError):  # The next round asks again.
            found = await votes.count_many(list(NAMES))
            async with changed:
                now.update(zip(NAMES, map(int, found)))
                changed.notify_all()
        await asyncio.sleep(0.2)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    await votes.create_tables()
    await votes.add_items(list(NAMES))
    watcher = asyncio.create_task(watch())
    yield
    watcher.cancel()
    await votes.aclose()


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def page(visitor: str | None = Cookie(None)) -> Response:
    response = FileResponse(os.path.join(os.path.dirname(__file__), "index.html"))
    if visitor is None:
        response.set_cookie("visitor", secrets.token_hex(16), httponly=True, samesite="strict")
    return response


@app.get("/likes")
async def likes(visitor: Visitor) -> dict[str, bool]:
    mine = await votes.get_many(list(NAMES), visitor)
    return {name: bool(vote) for name, vote in zip(NAMES.values(), mine)}


@app.put("/likes/{item}")
async def like(item: Item, visitor: Visitor) -> hotcount.Cast:
    return await votes.cast(item, visitor, with_count=True)


@app.delete("/likes/{item}")
async def unlike(item: Item, visitor: Visitor) -> hotcount.Cast:
    return await votes.retract(item, visitor, with_count=True)


@app.get("/events", response_class=EventSourceResponse)
async def events() -> AsyncIterable[dict[int, int]]:
    told: dict[int, int] = {}
    while True:
        async with changed:
            while now == told:
                await changed.wait()
            told = dict(now)
        yield told
