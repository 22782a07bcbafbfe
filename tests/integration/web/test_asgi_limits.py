"""Limits of ASGI and FastAPI applications: keys, options, handshakes, bad input."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import hotcount
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request, WebSocket, WebSocketDisconnect
from fastapi.testclient import TestClient
from hotcount import aio
from hotcount.integrations._web import Addresses
from hotcount.integrations.asgi import RateLimitMiddleware
from hotcount.integrations.fastapi import (
    RateLimiter,
    RateLimitExceeded,
    install,
    limit_exceeded_handler,
)
from starlette.authentication import BaseUser
from starlette.requests import HTTPConnection
from starlette.testclient import WebSocketDenialResponse

from tests.support.servers import RedisServer

PROXIES = ["10.0.0.0/8", "unix"]


@pytest.mark.parametrize(
    ("peer", "forwarded", "trusted", "address"),
    [
        ("8.8.8.8", "", [], "8.8.8.8"),
        ("8.8.8.8", "1.1.1.1", [], "8.8.8.8"),  # Nobody is trusted: forged.
        ("8.8.8.8", "1.1.1.1", PROXIES, "8.8.8.8"),  # The peer is no proxy: forged.
        ("10.0.0.1", "1.1.1.1", PROXIES, "1.1.1.1"),
        ("10.0.0.1", "9.9.9.9, 1.1.1.1", PROXIES, "1.1.1.1"),  # The client wrote 9.9.9.9.
        ("10.0.0.1", "1.1.1.1, 10.2.2.2", PROXIES, "1.1.1.1"),  # Two proxies.
        ("10.0.0.1", "1.1.1.1:5000", PROXIES, "1.1.1.1"),
        ("10.0.0.1", '"[2001:db8::7]:80"', PROXIES, "2001:db8::/64"),
        ("10.0.0.1", "", PROXIES, "10.0.0.1"),
        ("10.0.0.1", "unknown", PROXIES, "10.0.0.1"),
        ("10.0.0.1", "1.1.1.1, unknown", PROXIES, "10.0.0.1"),
        ("10.0.0.1", "10.3.3.3", PROXIES, "10.3.3.3"),  # All are proxies: the first of them.
        (None, "1.1.1.1", PROXIES, "1.1.1.1"),
        (None, "", PROXIES, "unix"),
        ("testclient", "1.1.1.1", PROXIES, "testclient"),
        ("2001:db8::1", "", [], "2001:db8::/64"),
        ("2001:db8::ffff:1", "", [], "2001:db8::/64"),
        ("::ffff:8.8.8.8", "", [], "8.8.8.8"),
        ("::ffff:10.0.0.1", "1.1.1.1", PROXIES, "1.1.1.1"),
        ("fe80::1%eth0", "", [], "fe80::/64"),
        ("::ffff:10.0.0.1", "1.1.1.1", ["::ffff:10.0.0.0/104"], "1.1.1.1"),
    ],
)
def test_the_address_is_that_which_no_client_can_write(
    peer: str | None, forwarded: str, trusted: list[str], address: str
) -> None:
    assert Addresses(trusted).find(peer, forwarded) == address


def test_bad_proxies_are_named() -> None:
    with pytest.raises(hotcount.ConfigError, match=r"trusted_proxies has 'proxy'"):
        Addresses(["proxy"])
    with pytest.raises(TypeError, match="not one str"):
        Addresses("10.0.0.0/8")
    with pytest.raises(hotcount.ConfigError, match="ipv6_prefix is 0"):
        Addresses((), 0)
    with pytest.raises(hotcount.ConfigError, match="add 'unix' to trusted_proxies"):
        Addresses(()).find(None, "1.1.1.1")
    assert Addresses((), 128).find("2001:db8::1", "") == "2001:db8::1"


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """An ASGI application, with a header of its own that the middleware replaces."""
    headers = [(b"x-ratelimit-limit", b"7"), (b"x-own", b"1")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


def statuses(client: TestClient, path: str = "/", times: int = 3, **options: Any) -> list[int]:
    return [client.get(path, **options).status_code for _ in range(times)]


@pytest.fixture(params=[hotcount.Limiter, aio.Limiter], ids=["sync", "aio"])
def limiter(request: pytest.FixtureRequest) -> Any:
    return request.param("memory://", "1/minute", name="web")


async def soon(scope: Any) -> str:
    await asyncio.sleep(0)
    return str(scope["path"])


@pytest.mark.parametrize("key", ["ip", "user_or_ip", "path", "header:host", soon])
def test_the_middleware_limits_by_each_key(limiter: Any, key: Any) -> None:
    client = TestClient(RateLimitMiddleware(hello, limiter, key_func=key))
    assert statuses(client) == [200, 429, 429]
    refused = client.get("/")
    assert refused.json() == {"detail": "Rate limit exceeded: 1/minute. Retry after 60 seconds"}
    assert refused.headers["x-ratelimit-limit"] == "1"
    assert "x-own" not in refused.headers
    assert statuses(client, "/other") == ([200, 429, 429] if key in ("path", soon) else [429] * 3)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"enabled": False}, [200, 200, 200]),
        ({"exempt": lambda scope: True}, [200, 200, 200]),
        ({"methods": ["POST"]}, [200, 200, 200]),
        ({"methods": ["get"]}, [200, 429, 429]),
        ({"exempt": ["/", "/health"]}, [200, 200, 200]),
        ({"exempt": ["/health"]}, [200, 429, 429]),
        ({"default_limits": ["2/minute", "5/hour"]}, [200, 200, 429]),
        ({"default_limits": lambda scope: hotcount.Rate(2, 60, 2)}, [200, 200, 429]),
        ({"cost": lambda scope: 2, "default_limits": "5/minute"}, [200, 200, 429]),
        ({"cost": 2}, [429, 429, 429]),
    ],
)
def test_options_choose_what_is_limited(limiter: Any, options: Any, told: list[int]) -> None:
    assert statuses(TestClient(RateLimitMiddleware(hello, limiter, **options))) == told


@pytest.mark.parametrize(
    ("style", "names"),
    [
        ("ietf", {"ratelimit", "ratelimit-policy"}),
        ("legacy", {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}),
        ("none", set()),
    ],
)
def test_headers_have_a_style(limiter: Any, style: Any, names: set[str]) -> None:
    client = TestClient(RateLimitMiddleware(hello, limiter, headers=style))
    told = {name for name in client.get("/").headers if "ratelimit" in name}
    assert told == names | {"x-ratelimit-limit"}  # The application's own stays, or is replaced.
    assert ("retry-after" in client.get("/").headers) == bool(names)


def test_a_refusal_of_ones_own(limiter: Any) -> None:
    def refuse(scope: Any, decision: hotcount.Decision) -> Any:
        assert not decision
        return hello

    client = TestClient(RateLimitMiddleware(hello, limiter, refuse=refuse))
    assert [client.get("/").text for _ in range(2)] == ["hello", "hello"]
    with pytest.raises(hotcount.ConfigError, match="refuse returned None"):
        TestClient(RateLimitMiddleware(hello, limiter, refuse=lambda *_: None)).get("/")


@pytest.mark.parametrize(
    ("options", "error", "names"),
    [
        ({"key_func": "address"}, hotcount.ConfigError, "key_func is 'address'; it takes 'ip'"),
        ({"key_func": "header:"}, hotcount.ConfigError, "key_func is 'header:'"),
        ({"key_func": 7}, TypeError, "key_func must be a function"),
        ({"exempt": "/health"}, TypeError, "exempt must be several paths"),
        ({"default_limits": None}, hotcount.ConfigError, "there are no limits"),
        ({"default_limits": ["often"]}, hotcount.ConfigError, "'often'"),
        ({"store": None}, hotcount.ConfigError, "default_limits needs a store"),
        ({"methods": "GET"}, TypeError, r"\['GET'\]"),
        ({"headers": "x"}, hotcount.ConfigError, "headers is 'x'"),
        ({"store": "5/minute"}, hotcount.ConfigError, "URL: expected scheme"),
        ({"key": "ip"}, TypeError, "key"),
    ],
)
def test_bad_options_are_named_when_the_application_is_made(
    options: Any, error: type[Exception], names: str
) -> None:
    given = {"store": "memory://", "default_limits": ["1/minute"], **options}
    with pytest.raises(error, match=names):
        RateLimitMiddleware(hello, **given)


def test_a_header_that_is_missing_or_long_is_a_key_like_others(limiter: Any) -> None:
    client = TestClient(RateLimitMiddleware(hello, limiter, key_func="header:x-key"))
    keys = [{}, {"x-key": "a"}, {"x-key": "a" * 8000}, {"x-key": "a" * 8001}]
    assert [client.get("/", headers=key).status_code for key in keys] == [200] * 4
    assert [client.get("/", headers=key).status_code for key in keys] == [429] * 4


def test_a_second_header_of_the_name_is_no_other_key(limiter: Any) -> None:
    client = TestClient(RateLimitMiddleware(hello, limiter, key_func="header:x-key"))
    told = [client.get("/", headers=[("x-key", "a"), ("x-key", other)]) for other in "bcd"]
    assert [response.status_code for response in told] == [200, 429, 429]


def no_key(scope: Any) -> None:
    return None


def test_a_key_function_without_a_key_is_named(limiter: Any) -> None:
    client = TestClient(RateLimitMiddleware(hello, limiter, key_func=no_key))
    with pytest.raises(hotcount.ConfigError, match=r"no_key returned None.*exempt="):
        client.get("/")


store = hotcount.Memory()


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI()
    install(app)
    return app


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, raise_server_exceptions=False) as made:
        yield made


def named(name: str, rate: str) -> hotcount.Limiter:
    return hotcount.Limiter(store, rate, name=name)


def test_a_refusal_spends_nothing_of_other_limits(app: FastAPI, client: TestClient) -> None:
    everybody, one = named("everybody", "10/minute"), named("one", "1/minute")
    limits = [Depends(RateLimiter(limiter, key_func=lambda _: "k")) for limiter in (everybody, one)]

    @app.get("/", dependencies=limits)
    async def root() -> None: ...

    assert statuses(client, times=4) == [200, 429, 429, 429]
    assert everybody.peek("k").remaining == 9
    assert client.get("/").headers["x-ratelimit-limit"] == "1"


def test_a_request_that_is_answered_in_spite_of_a_refusal_has_spent_the_others(
    app: FastAPI, client: TestClient
) -> None:
    soft = RateLimiter(named("soft", "1/hour"))

    @app.get("/", dependencies=[Depends(RateLimiter(named("hard", "3/hour")))])
    async def root(request: Request) -> None:
        with suppress(hotcount.LimitExceeded):
            await soft(request)

    assert statuses(client, times=5) == [200, 200, 200, 429, 429]


def test_a_refusal_of_a_decorator_spends_nothing_of_other_limits(
    app: FastAPI, client: TestClient
) -> None:
    outer, inner = named("outer", "3/hour"), named("inner", "1/hour")

    @app.get("/", dependencies=[Depends(RateLimiter(outer, key_func=lambda _: "k"))])
    @inner.limit(key="k")
    async def root() -> None: ...

    assert statuses(client, times=5) == [200, 429, 429, 429, 429]
    assert outer.peek("k").remaining == 2


def test_mounted_applications_and_headers_of_ones_own(app: FastAPI, client: TestClient) -> None:
    mounted = FastAPI()
    app.mount("/sub", mounted)

    @mounted.get("/", dependencies=[Depends(RateLimiter(named("mounted", "1/hour")))])
    async def root() -> None: ...

    @app.get("/busy", dependencies=[Depends(RateLimiter(named("busy", "9/hour")))])
    async def busy() -> None:
        raise HTTPException(503, headers={"Retry-After": "120"})

    assert statuses(client, "/sub/") == [200, 429, 429]
    assert client.get("/busy").headers["retry-after"] == "120"


def test_users_without_an_identity_count_by_address(limiter: Any) -> None:
    class Authenticated:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await self.app({**scope, "user": NamelessUser()}, receive, send)

    class NamelessUser(BaseUser):
        is_authenticated = True

    limited = RateLimitMiddleware(hello, limiter, key_func="user_or_ip")
    assert statuses(TestClient(Authenticated(limited))) == [200, 429, 429]


def test_a_refusal_after_the_handshake_closes_the_socket(app: FastAPI, client: TestClient) -> None:
    limiter = named("messages", "1/hour")

    @app.websocket("/socket")
    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        for _ in range(2):
            if not await aio.Limiter.hit(limiter, "k"):  # type: ignore[arg-type]
                raise hotcount.LimitExceeded(limiter.peek("k", rate="1/hour"))
            await socket.send_text("hello")

    with client.websocket_connect("/socket") as socket:
        assert socket.receive_text() == "hello"
        with pytest.raises(WebSocketDisconnect) as closed:
            socket.receive_text()
    assert closed.value.code == 1008


def test_the_dependency_is_the_decision_and_knows_plans(app: FastAPI, client: TestClient) -> None:
    def rate(request: HTTPConnection) -> str | None:
        return {"free": "1/minute"}.get(request.headers["plan"])

    limit = RateLimiter(named("plans", "3/minute"), rate)

    @app.get("/")
    async def root(decision: hotcount.Decision = Depends(limit)) -> int:  # noqa: B008
        return decision.limit

    assert statuses(client, headers={"plan": "free"}) == [200, 429, 429]
    assert client.get("/", headers={"plan": "gold"}).json() == 3
    limit.enabled = False
    with pytest.raises(AttributeError):  # There is no decision.
        TestClient(app).get("/", headers={"plan": "free"})


def test_routes_share_a_limiter_or_count_apart(app: FastAPI, client: TestClient) -> None:
    limiter = named("routes", "1/minute")
    for path, scope in (("/a", None), ("/b", None), ("/c", "c"), ("/d", "d")):
        app.get(path, dependencies=[Depends(RateLimiter(limiter, scope=scope))])(lambda: None)
    assert [client.get(path).status_code for path in ("/a", "/b", "/c", "/d")] == [
        *(200, 429),
        *(200, 200),
    ]


def test_headers_stand_on_errors_of_the_application(app: FastAPI, client: TestClient) -> None:
    @app.get("/{status}", dependencies=[Depends(RateLimiter(named("errors", "9/minute")))])
    def fail(status: int) -> None:
        if status == 500:
            raise RuntimeError
        raise HTTPException(status)

    for status in (401, 404, 422, 500):
        response = client.get(f"/{status}")
        assert response.status_code == status
        assert response.headers["ratelimit-policy"] == '"errors";q=9;w=60'


def test_a_handshake_is_refused(app: FastAPI, client: TestClient) -> None:
    limit = RateLimiter(named("sockets", "1/minute"))

    @app.websocket("/socket", dependencies=[Depends(limit)])
    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()

    with client.websocket_connect("/socket") as socket:
        assert socket.receive_text() == "hello"
    with pytest.raises(WebSocketDenialResponse) as refused:
        client.websocket_connect("/socket").__enter__()
    assert refused.value.status_code == 429
    assert refused.value.headers["retry-after"] == "60"


def test_a_handshake_at_the_middleware(limiter: Any) -> None:
    client = TestClient(RateLimitMiddleware(hello, limiter))
    client.get("/")
    with pytest.raises(WebSocketDenialResponse) as refused:
        client.websocket_connect("/").__enter__()
    assert refused.value.status_code == 429


def test_a_server_without_the_extension_closes_the_handshake(limiter: Any) -> None:
    async def refused() -> list[Any]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        app = RateLimitMiddleware(hello, limiter, key_func="path", cost=2)
        await app({"type": "websocket", "path": "/", "headers": []}, receive, send)
        return sent

    (close,) = asyncio.run(refused())
    assert (close["type"], close["code"]) == ("websocket.close", 1008)


def test_the_dependency_alone_answers_429() -> None:
    app = FastAPI()
    limit = RateLimiter(hotcount.Memory(), ["1/minute", "5/hour"], name="alone")

    @app.get("/", dependencies=[Depends(limit)])
    async def root() -> None: ...

    client = TestClient(app)
    assert statuses(client) == [200, 429, 429]
    assert client.get("/").headers["retry-after"] == "60"
    with pytest.raises(RateLimitExceeded) as refused:
        asyncio.run(
            limit(HTTPConnection({"type": "http", "headers": [], "client": ("testclient", 1)}))
        )
    assert isinstance(refused.value, hotcount.LimitExceeded)
    assert not refused.value.decision


def test_the_handler_alone_answers_decorators() -> None:
    app = FastAPI()
    app.add_exception_handler(hotcount.LimitExceeded, limit_exceeded_handler)
    limiter = hotcount.Limiter("memory://", "1/minute")

    @app.get("/")
    @limiter.limit(key="all")
    async def root() -> None: ...

    client = TestClient(app)
    assert statuses(client) == [200, 429, 429]
    assert client.get("/").headers["retry-after"] == "60"


def test_install_comes_before_the_application_starts(app: FastAPI, client: TestClient) -> None:
    client.get("/")
    with pytest.raises(hotcount.ConfigError, match="before the application has started"):
        install(app)


async def status_of(app: Any, path: str) -> int:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    about = {"type": "http", "method": "GET", "scheme": "http", "query_string": b"", "headers": []}
    await app({**about, "path": path, "client": ("10.0.0.1", 1)}, receive, send)
    status: int = sent[0]["status"]
    return status


@pytest.mark.parametrize("kind", ["dependency", "middleware", "decorator"])
@pytest.mark.parametrize("face", [hotcount.Limiter, aio.Limiter])
async def test_a_request_that_waits_for_redis_keeps_no_other_waiting(
    own_redis: RedisServer, face: Any, kind: str
) -> None:
    limiter = face(own_redis.redis(timeout=20), "1000/minute")
    app = FastAPI()
    install(app)

    async def said() -> str:
        return "said"

    own = limiter.limit(key="k")(said) if kind == "decorator" else said
    depends = [Depends(RateLimiter(limiter))] if kind == "dependency" else []
    app.get("/limited", dependencies=depends)(own)
    app.get("/free")(said)
    served = RateLimitMiddleware(app, limiter, exempt=["/free"]) if kind == "middleware" else app
    with own_redis.stopped():
        waiting = asyncio.ensure_future(status_of(served, "/limited"))
        others = [await status_of(served, "/free") for _ in range(20)]
        assert not waiting.done()
    assert [*others, await waiting] == [200] * 21
