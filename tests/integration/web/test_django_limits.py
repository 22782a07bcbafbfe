"""Limits of Django views, the middleware and the throttles of Django REST framework."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import hotcount
import pytest
from hotcount.integrations import django as limits

from tests.support.limit_apps import configure_django

configure_django()

from django.core.exceptions import ImproperlyConfigured  # noqa: E402
from django.http import HttpRequest, JsonResponse  # noqa: E402
from django.template.backends.django import DjangoTemplates  # noqa: E402
from django.template.response import SimpleTemplateResponse  # noqa: E402
from django.test import AsyncClient, Client, RequestFactory, override_settings  # noqa: E402
from django.views import View  # noqa: E402


def with_settings(**changes: Any) -> Any:
    return override_settings(HOTCOUNT_RATELIMIT={"STORE": "memory://", "NAME": "web", **changes})


@pytest.fixture(autouse=True)
def _a_store_of_its_own() -> Iterator[None]:
    with with_settings():
        yield


def statuses(*paths: str, method: str = "get", user: str = "anna", **options: Any) -> list[int]:
    client = Client(raise_request_exception=False)
    headers = {"x-user": user}
    return [getattr(client, method)(path, headers=headers, **options).status_code for path in paths]


def test_plain_and_async_views() -> None:
    assert statuses("/two", "/two", "/two") == [200, 200, 429]
    assert statuses("/two", user="ben") == [200]
    refused = Client().get("/two", headers={"x-user": "anna"})
    assert refused.content == b"Rate limit exceeded: 2/minute. Retry after 30 seconds"

    async def told() -> list[int]:
        client = AsyncClient()
        return [(await client.get(path)).status_code for path in ("/open", "/ip", "/ip")]

    assert asyncio.run(told()) == [200, 200, 429]


def test_block_false_leaves_the_answer_to_the_view() -> None:
    client = Client()
    answers = [client.get("/looks") for _ in range(2)]
    assert [answer.content for answer in answers] == [b"False", b"True"]
    assert "Retry-After" not in answers[1].headers


def test_methods() -> None:
    assert statuses("/unsafe", "/unsafe") == [200, 200]
    assert statuses("/unsafe", "/unsafe", method="post") == [200, 429]


def test_rates_and_keys_from_functions() -> None:
    free, gold = "/planned?plan=free&who=1", "/planned?plan=gold&who=1"
    assert statuses(free, free, gold, gold) == [200, 429, 200, 200]
    assert statuses("/planned?plan=free&who=2", "/never") == [200, 429]


def test_a_refusal_spends_nothing_of_other_limits() -> None:
    assert statuses("/nested", "/nested", "/nested", "/nested") == [200, 429, 429, 429]
    request = RequestFactory().get("/", headers={"x-user": "anna"})
    assert not limits.is_ratelimited(request, "outer", key="header:x-user", rate="3/m")


def test_a_request_that_is_answered_in_spite_of_a_refusal_has_spent_the_others() -> None:
    assert statuses(*["/soft"] * 5) == [200, 200, 200, 429, 429]
    # A throttle decides by itself, whatever a limit of the view has refused.
    assert statuses(*["/soft-throttled"] * 4) == [200, 200, 429, 429]


def test_views_of_classes_count_apart() -> None:
    assert statuses("/first", "/second", "/first", "/second") == [200, 200, 429, 429]
    assert statuses("/wrapped-first", "/wrapped-second", "/wrapped-first") == [200, 200, 429]


def test_an_async_view_waits_for_no_user_and_no_store() -> None:
    @limits.ratelimit(key="user_or_ip", rate="1/m")
    async def view(request: HttpRequest) -> bool:
        return await limits.ais_ratelimited(request, "g", key="ip", rate="1/m", increment=True)

    class User:
        pk, is_authenticated = 7, True

    class Asking(HttpRequest):  # type: ignore[misc]
        async def auser(self) -> User:
            return User()

    async def answers() -> list[Any]:
        request = Asking()
        request.META["REMOTE_ADDR"] = "10.0.0.1"
        first = await view(request)
        usage = await limits.aget_usage(request, "g", key="ip", rate="1/m")
        with pytest.raises(limits.Ratelimited):
            await view(request)
        return [first, usage and usage["should_limit"]]

    assert asyncio.run(answers()) == [False, True]

    async def twice() -> list[int]:
        client = AsyncClient()
        return [(await client.get("/async-class")).status_code for _ in range(2)]

    assert asyncio.run(twice()) == [200, 429]


@pytest.mark.parametrize(
    ("key", "request_of"),
    [
        ("get:who", lambda make, who: make.get("/", {"who": who})),
        ("post:who", lambda make, who: make.post("/", {"who": who})),
        ("ip", lambda make, who: make.get("/", REMOTE_ADDR=f"10.0.0.{len(who)}")),
        ("user_or_ip", lambda make, who: make.get("/", REMOTE_ADDR=f"10.0.0.{len(who)}")),
        (lambda group, request: request.path, lambda make, who: make.get(f"/{who}")),
    ],
)
def test_keys(key: Any, request_of: Any) -> None:
    @limits.ratelimit(key=key, rate="1/m")
    def view(request: HttpRequest) -> bool:
        return True

    def admitted(who: str) -> bool:
        try:
            return view(request_of(RequestFactory(), who))
        except limits.Ratelimited as refused:
            return refused.decision.policy != "web"

    assert [admitted(who) for who in ("a", "a", "ab", "ab")] == [True, False, True, False]


def test_is_ratelimited_looks_and_counts() -> None:
    request = RequestFactory().get("/")
    options: Any = {"request": request, "group": "g", "key": "ip", "rate": "1/m"}
    assert not limits.is_ratelimited(**options)
    assert not limits.is_ratelimited(**options, increment=True)
    assert limits.is_ratelimited(**options)
    assert request.limited
    usage = {"count": 2, "limit": 1, "should_limit": True, "time_left": 60}
    assert limits.get_usage(**options, increment=True) == usage
    assert limits.get_usage(**{**options, "rate": None}) is None
    # A method's limit counts apart.
    assert not limits.is_ratelimited(**options, method="GET")
    with pytest.raises(hotcount.ConfigError, match="needs a group"):
        limits.is_ratelimited(request, key="ip", rate="1/m")


def test_the_middleware_limits_all_requests() -> None:
    with with_settings(RATE="2/m", KEY="header:x-user"):
        assert statuses("/ip", "/looks", "/boom", "/none") == [200, 200, 429, 429]
        assert statuses("/looks", user="ben") == [200]

        async def told() -> list[int]:
            client = AsyncClient(headers={"x-user": "eve"})
            return [(await client.get("/none")).status_code for _ in range(3)]

        assert asyncio.run(told()) == [404, 404, 429]


async def later(request: HttpRequest, error: Any) -> JsonResponse:
    return JsonResponse({})


def view_of_refusals(request: HttpRequest, error: Any) -> JsonResponse:
    return JsonResponse({"limit": error.decision.limit, "path": request.path}, status=429)


def rendered_later(request: HttpRequest, error: Any) -> SimpleTemplateResponse:
    engine = DjangoTemplates({"NAME": "x", "DIRS": [], "APP_DIRS": False, "OPTIONS": {}})
    template = engine.from_string("at most {{ limit }}")
    return SimpleTemplateResponse(template, {"limit": error.decision.limit}, status=429)


def test_a_view_of_refusals_may_be_rendered_later() -> None:
    with with_settings(RATE="1/m", VIEW=f"{__name__}.rendered_later"):
        told = [Client().get("/open") for _ in range(2)]
        told.append(asyncio.run(AsyncClient().get("/open")))
        assert [one.status_code for one in told] == [200, 429, 429]
        assert told[1].content == told[2].content == b"at most 1"


@pytest.mark.parametrize("name", ["VIEW", "RATELIMIT_VIEW"])
def test_a_view_answers_refusals(name: str) -> None:
    path = f"{__name__}.view_of_refusals"
    changes = {"VIEW": path} if name == "VIEW" else {}
    with (
        override_settings(**({name: path} if not changes else {})),
        with_settings(RATE="3/m", **changes),
    ):
        # Of @ratelimit, of a decorated function, and of the middleware; the last one is async.
        told = [Client().get(each, headers={"x-user": name}) for each in ("/ip", "/ip", "/ip")]
        assert [one.status_code for one in told] == [200, 429, 429]
        assert told[1].json() == {"limit": 1, "path": "/ip"}
        assert told[1].headers["Retry-After"] == "60"
        # A refusal has spent nothing of the limit of all requests.
        more = [Client().get("/looks").status_code for _ in range(3)]
        assert more == [200, 200, 429]
        soon = asyncio.run(AsyncClient().get("/none"))
        assert soon.json() == {"limit": 3, "path": "/none"}


def test_tests_switch_limits_off() -> None:
    with with_settings(ENABLE=False):
        assert statuses("/ip", "/ip", "/throttled", "/throttled", "/throttled") == [200] * 5
    with override_settings(RATELIMIT_ENABLE=False, HOTCOUNT_RATELIMIT={"STORE": "memory://"}):
        assert statuses("/ip", "/ip") == [200, 200]


def test_addresses_are_believed_behind_proxies_alone() -> None:
    def told() -> list[int]:
        client = Client()
        forwarded = ("1.1.1.1", "9.9.9.9, 1.1.1.1", "2.2.2.2")
        return [client.get("/ip", headers={"x-forwarded-for": f}).status_code for f in forwarded]

    assert told() == [200, 429, 429]
    with with_settings(TRUSTED_PROXIES=["127.0.0.0/8"]):
        assert told() == [200, 429, 200]


def test_throttles_of_rest_framework() -> None:
    # The anonymous throttle refuses; that of users is not spent by it.
    assert statuses(*["/throttled"] * 4) == [200, 200, 429, 429]
    refused = Client().get("/throttled")
    assert refused.headers["Retry-After"] == "30"
    assert refused.headers["RateLimit-Policy"] == '"web";q=2;w=60'
    # The address is that of the middleware's settings, and not a header of the client's.
    for forged in ("9.9.9.9", "9" * 2000):
        assert Client().get("/throttled", headers={"x-forwarded-for": forged}).status_code == 429
    assert statuses("/reports", "/reports") == [200, 429]
    assert statuses("/closed") == [429]
    assert statuses(*["/forbidden"] * 3) == [403] * 3
    assert Client().get("/forbidden").headers["X-RateLimit-Limit"] == "5"
    assert statuses("/forbidden", "/forbidden") == [429, 429]


@pytest.mark.parametrize(
    ("changes", "error", "names"),
    [
        ({"STORE": None}, ImproperlyConfigured, "has no STORE"),
        ({"RATES": "1/m"}, ImproperlyConfigured, "has 'RATES'; it takes STORE"),
        ({"HEADERS": "x"}, hotcount.ConfigError, "headers is 'x'"),
        ({"TRUSTED_PROXIES": ["x"]}, hotcount.ConfigError, "trusted_proxies has 'x'"),
        ({"VIEW": "no.view"}, ImproperlyConfigured, "VIEW is 'no.view': No module"),
        ({"VIEW": 5}, ImproperlyConfigured, "VIEW is 5; it takes a plain function"),
        ({"VIEW": later}, ImproperlyConfigured, "VIEW is .*later.*; it takes a plain function"),
        ({"VIEW": View}, ImproperlyConfigured, "VIEW is .*View.*; it takes a plain function"),
        ({"ALGORITHM": "x"}, hotcount.ConfigError, "algorithm is 'x'"),
    ],
)
def test_bad_settings_are_named(changes: Any, error: type[Exception], names: str) -> None:
    with with_settings(**changes), pytest.raises(error, match=names):
        Client().get("/ip")


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("RATELIMIT_IP_META_KEY", "TRUSTED_PROXIES"),
        ("RATELIMIT_EXCEPTION_CLASS", "VIEW"),
        ("RATELIMIT_HASH_ALGORITHM", "SHA-256"),
    ],
)
def test_settings_that_are_not_read_are_named(setting: str, names: str) -> None:
    with (
        override_settings(**{setting: "x"}),
        pytest.raises(ImproperlyConfigured, match=f"{setting} is not read: .*{names}"),
    ):
        Client().get("/ip")


def test_an_order_that_cannot_work_is_named() -> None:
    with (
        with_settings(RATE="1/m", KEY="user_or_ip"),
        pytest.raises(ImproperlyConfigured, match=r"needs .* behind .*AuthenticationMiddleware"),
    ):
        Client().get("/ip")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, "needs a key"),
        ({"key": "address", "rate": "1/m"}, "key is 'address'; it takes 'ip', 'user'"),
        ({"key": "ip", "rate": "often/m"}, "'often/m'"),
    ],
)
def test_bad_options_are_named_at_import(options: dict[str, Any], names: str) -> None:
    with pytest.raises(hotcount.ConfigError, match=names):
        limits.ratelimit(**options)(lambda request: None)


def test_functions_that_there_are_not_and_keys_that_are_none() -> None:
    request = RequestFactory().get("/")
    for key, rate in (("no.where", "1/m"), ("ip", "no.where")):
        view: Any = limits.ratelimit(key=key, rate=rate)(lambda request: None)
        with pytest.raises(hotcount.ConfigError, match=r"there is no function 'no\.where'"):
            view(request)
    with pytest.raises(hotcount.ConfigError, match="returned None"):
        Client().get("/without-key")
