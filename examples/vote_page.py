"""A page to vote on, with live counts, 1,000 bots at a click, and a running audit.

    .venv/bin/python examples/vote_page.py 127.0.0.1:8000

One process, one SQLite file in a temporary folder. Each visitor is a user (a cookie says which),
and each button casts or retracts that user's vote, so a request may be sent again without harm.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import hotcount

ITEMS = {1: "SQLite", 2: "PostgreSQL", 3: "MariaDB", 4: "Redis", 5: "Valkey"}
# Of 1,000 bots so many vote for each, so that the bars differ.
SHARES = {1: 400, 2: 250, 3: 160, 4: 110, 5: 80}
BOT_THREADS = 32
MOST_VIEWERS = 64
LARGEST_BODY = 1024
AUDIT_EVERY = 0.25
COOKIE = "hotcount_visitor"


@dataclass
class Told:
    """What the callers were told of their votes, as sums over all of them."""

    begun: int = 0  # Casts and retracts that were sent.
    ended: int = 0  # Of these, the ones whose outcome is known.
    votes: int = 0  # Casts that counted, less retracts that did.
    failed: int = 0  # Nothing was applied.
    unknown: int = 0  # Nobody was told what became of these: never `ended`.


@dataclass(frozen=True)
class Audit:
    """The database at one instant beside what callers had been told around it."""

    rows: int
    counted: int
    told: int
    under_way: int
    wrong: str

    @property
    def ok(self) -> bool:
        return self.wrong == ""


def audit_of(rows: dict[int, int], counts: dict[int, int], before: Told, after: Told) -> Audit:
    """The verdict on one reading: rows and counts by item, and the sums before and after it.

    What was under way, or began meanwhile, may have moved the sum by one each, either way.
    """
    total, counted = sum(rows.values()), sum(counts.values())
    under_way = after.begun - before.ended
    wrong = [
        f"{ITEMS.get(item, item)}: {rows.get(item, 0)} votes, counted {counts.get(item, 0)}"
        for item in sorted(rows.keys() | counts.keys())
        if rows.get(item, 0) != counts.get(item, 0)
    ]
    if total < before.votes - under_way:
        wrong.append(f"{before.votes - under_way - total} lost")
    if total > before.votes + under_way:
        wrong.append(f"{total - before.votes - under_way} too many")
    return Audit(total, counted, after.votes, under_way, "; ".join(wrong))


class Booth:
    """The votes, the bots and the audit. Thread safe."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "votes.db"
        self._votes = hotcount.Votes(f"sqlite:///{self._file}", strategy="batched")
        self._votes.create_tables()
        self._votes.add_items(list(ITEMS))
        self._told = Told()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._changes = 0
        self._closed = threading.Event()
        self._bots_left = 0
        self._next_bot = 1 << 62
        self._per_second = 0
        self._first_wrong = ""
        self._audits = 0
        self.viewers = 0
        self._audit = self.audit()
        self._auditor = threading.Thread(target=self._keep_auditing, name="audit")
        self._auditor.start()

    def vote(self, item: int, user: int, on: bool) -> int:
        """Casts or retracts the user's vote; returns the item's count, this vote in it."""
        with self._lock:
            self._told.begun += 1
        try:
            cast = self._votes.cast(item, user) if on else self._votes.retract(item, user)
        except hotcount.OutcomeUnknownError:
            with self._changed:
                self._told.unknown += 1
                self._tell_viewers()
            raise
        except BaseException:
            with self._changed:
                self._told.ended += 1
                self._told.failed += 1
                self._tell_viewers()
            raise
        with self._changed:
            self._told.ended += 1
            self._told.votes += (1 if on else -1) if cast.changed else 0
            self._tell_viewers()
        return int(self._votes.count(item))

    def mine(self, user: int) -> list[int]:
        """The items that the user has a vote on."""
        return [item for item in ITEMS if self._votes.get(item, user)]

    def send_bots(self, number: int) -> bool:
        """Starts that many new users, who vote once each; False while earlier ones still vote."""
        with self._lock:
            if self._bots_left or self._closed.is_set():
                return False
            self._bots_left = number
            first = self._next_bot
            self._next_bot += number
        threading.Thread(target=self._run_bots, args=(first, number), name="bots").start()
        return True

    def _run_bots(self, first: int, number: int) -> None:
        favourites = [item for item, share in SHARES.items() for _ in range(share)]
        started = time.perf_counter()

        def one(bot: int) -> None:
            # 389 has no factor in common with 1,000: the items take turns.
            if not self._closed.is_set():
                # vote() notes a failure, and the page says it.
                with contextlib.suppress(hotcount.HotcountError):
                    self.vote(favourites[bot * 389 % len(favourites)], first + bot, True)
            with self._changed:
                self._bots_left -= 1
                self._changed.notify_all()

        with ThreadPoolExecutor(BOT_THREADS) as pool:
            list(pool.map(one, range(number)))
        with self._changed:
            self._per_second = round(number / (time.perf_counter() - started))
            self._tell_viewers()

    def audit(self) -> Audit:
        """Reads all rows and counts at one instant, with another client than hotcount."""
        with self._lock:
            before = replace(self._told)
        with closing(sqlite3.connect(self._file, timeout=10)) as other:
            other.execute("BEGIN")
            rows = dict(other.execute("SELECT item_id, COUNT(*) FROM vote_live GROUP BY item_id"))
            counts = dict(other.execute("SELECT item, n FROM vote_count"))
        with self._lock:
            after = replace(self._told)
        return audit_of(rows, counts, before, after)

    def _keep_auditing(self) -> None:
        while not self._closed.wait(AUDIT_EVERY):
            audit = self.audit()
            with self._changed:
                self._audits += 1
                self._first_wrong = self._first_wrong or audit.wrong
                changed = audit != self._audit
                self._audit = audit
                if changed:
                    self._tell_viewers()

    def _tell_viewers(self) -> None:
        self._changes += 1
        self._changed.notify_all()

    def state(self) -> dict[str, Any]:
        """What the page shows."""
        counts = self._votes.count_many(list(ITEMS))
        with self._lock:
            return {
                "counts": {item: int(count) for item, count in zip(ITEMS, counts, strict=True)},
                "told": self._told.votes,
                "failed": self._told.failed,
                "unknown": self._told.unknown,
                "rows": self._audit.rows,
                "audits": self._audits,
                "wrong": self._first_wrong,
                "botsLeft": self._bots_left,
                "perSecond": self._per_second,
            }

    def states(self, at_most_every: float = 0.1, at_least_every: float = 5.0) -> Iterator[str]:
        """The state as JSON, now and after each change, until the booth is closed."""
        seen = -1
        while not self._closed.is_set():
            with self._changed:
                if self._changes == seen and not self._closed.is_set():
                    self._changed.wait(at_least_every)
                seen = self._changes
            yield json.dumps(self.state())
            self._closed.wait(at_most_every)

    @contextmanager
    def viewer(self) -> Iterator[bool]:
        """Counts one listener; False if there are enough."""
        with self._lock:
            admitted = self.viewers < MOST_VIEWERS
            self.viewers += admitted
        try:
            yield admitted
        finally:
            with self._lock:
                self.viewers -= admitted

    def close(self) -> Audit:
        """Ends bots, audit and listeners; returns a last audit, with nothing under way."""
        self._closed.set()
        with self._changed:
            self._tell_viewers()
        self._auditor.join()
        with self._changed:
            told = self._told
            self._changed.wait_for(
                lambda: not self._bots_left and told.begun == told.ended + told.unknown, timeout=20
            )
        last = self.audit()
        self._votes.close()
        wrong = self._first_wrong or last.wrong
        return Audit(last.rows, last.counted, last.told, last.under_way, wrong)


class Page(ThreadingHTTPServer):
    """The booth over HTTP, until stop() is called."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], booth: Booth) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.booth = booth
        page = Path(__file__).with_suffix(".html").read_text("utf-8")
        self.html = page.replace("ITEM_NAMES", json.dumps(ITEMS))
        super().__init__(address, Visit)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A visitor who left is no error; whatever else there was, the visitor was told."""


class Visit(BaseHTTPRequestHandler):
    """One connection of a browser."""

    server: Page
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        if self.path == "/":
            self._send_page()
        elif self.path == "/events":
            self._send_events()
        elif self.path == "/mine":
            self._send(HTTPStatus.OK, {"items": self.server.booth.mine(self._user()[0])})
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def do_POST(self) -> None:
        asked = self._body()
        if asked is None:
            return
        if self.path == "/vote":
            self._vote(asked)
        elif self.path == "/bots":
            if self.server.booth.send_bots(sum(SHARES.values())):
                self._send(HTTPStatus.ACCEPTED, {})
            else:
                self._refuse(HTTPStatus.CONFLICT, "the bots are still on their way")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def _vote(self, asked: dict[str, Any]) -> None:
        item, on = asked.get("item"), asked.get("on")
        if type(item) is not int or item not in ITEMS or type(on) is not bool:
            self._refuse(HTTPStatus.BAD_REQUEST, "item must be one of the page's, on true or false")
            return
        try:
            count = self.server.booth.vote(item, self._user()[0], on)
        except hotcount.HotcountError as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            return
        self._send(HTTPStatus.OK, {"item": item, "on": on, "count": count})

    def _body(self) -> dict[str, Any] | None:
        """The request's JSON object; None if it was refused."""
        # Another site's page could make this browser vote.
        origin = self.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != self.headers.get("Host"):
            self.close_connection = True
            self._refuse(HTTPStatus.FORBIDDEN, "votes are taken from this page only")
            return None
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > LARGEST_BODY:
            self.close_connection = True
            self._refuse(HTTPStatus.BAD_REQUEST, f"a body has 0 to {LARGEST_BODY} bytes")
            return None
        try:
            asked = json.loads(self.rfile.read(int(length)) or b"{}")
        except ValueError:
            asked = None
        if not isinstance(asked, dict):
            self._refuse(HTTPStatus.BAD_REQUEST, "the body must be a JSON object")
            return None
        return asked

    def _user(self) -> tuple[int, bool]:
        """The visitor's id, and whether the browser must be told of it."""
        with contextlib.suppress(CookieError, ValueError, KeyError):
            user = int(SimpleCookie(self.headers.get("Cookie", ""))[COOKIE].value, 16)
            if 0 <= user < 1 << 62:
                return user, False
        return secrets.randbits(62), True

    def _send_page(self) -> None:
        nonce = secrets.token_urlsafe(16)
        body = self.server.html.replace("NONCE", nonce).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        policy = (
            f"default-src 'none'; connect-src 'self'; img-src data:; script-src 'nonce-{nonce}'"
        )
        self.send_header("Content-Security-Policy", f"{policy}; style-src 'nonce-{nonce}'")
        user, is_new = self._user()
        if is_new:
            cookie = f"{COOKIE}={user:x}; Path=/; HttpOnly; SameSite=Strict"
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        self.wfile.write(body)

    def _send_events(self) -> None:
        with self.server.booth.viewer() as admitted:
            if not admitted:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_VIEWERS} watch already")
                return
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            for state in self.server.booth.states():
                self.wfile.write(f"data: {state}\n\n".encode())

    def _send(self, status: HTTPStatus, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(status, {"error": why})

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing: stderr is for what went wrong."""


def address(text: str) -> tuple[str, int]:
    """HOST:PORT; port 0 is any free one."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, as in 127.0.0.1:8000")
    return host, int(port)


def serve(where: tuple[str, int], *, as_json: bool) -> int:
    """Serves until SIGINT or SIGTERM. Exit code: 0 all audits found all right, 1 one did not."""
    with tempfile.TemporaryDirectory(prefix="hotcount-demo-") as folder:
        booth = Booth(Path(folder))
        try:
            page = Page(where, booth)
        except OSError as error:
            booth.close()
            print(f"{where[0]}:{where[1]}: {error.strerror}", file=sys.stderr)
            return 2
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        server = threading.Thread(target=page.serve_forever, name="page")
        server.start()
        host = f"[{where[0]}]" if ":" in where[0] else where[0]
        url = f"http://{host}:{page.server_address[1]}/"
        print(f"{url} until Ctrl-C", file=sys.stderr, flush=True)
        while not stop.is_set():
            time.sleep(0.1)
        page.shutdown()
        server.join()
        audit = booth.close()
        page.server_close()
    if as_json:
        print(json.dumps({**asdict(audit), "ok": audit.ok}))
    else:
        print(
            f"{audit.told:,} votes told to be counted, {audit.rows:,} rows, "
            f"{audit.counted:,} counted: {audit.wrong or 'nothing lost, nothing doubled'}"
        )
    return 0 if audit.ok else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("address", type=address, metavar="HOST:PORT", help="port 0: any free one")
    parser.add_argument("--json", action="store_true", help="the last audit as JSON")
    chosen = parser.parse_args()
    return serve(chosen.address, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
