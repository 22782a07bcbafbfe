"""Limits of Flask applications: what Flask-Limiter's users know, and what they ask for."""

from __future__ import annotations

from typing import Any

import hotcount
import pytest
from flask import Blueprint, Flask, abort, jsonify, make_response, request
from flask.views import MethodView
from hotcount.integrations.flask import (
    Limiter,
    RateLimitExceeded,
    forwarded_address,
    get_remote_address,
)


class Served:
    """An application and its limiter."""

    def __init__(self, config: dict[str, Any] | None = None, **options: Any) -> None:
        self.app = Flask(__name__)
        self.app.config.update(config or {})
        options.setdefault("storage_uri", "memory://")
        self.limiter = Limiter(options.pop("key_func", get_remote_address), app=self.app, **options)

    def route(self, path: str, *decorators: Any, methods: Any = ("GET", "POST")) -> None:
        def view() -> str:
            return path

        view.__name__ = path.strip("/")
        for decorator in reversed(decorators):
            view = decorator(view)
        self.app.add_url_rule(path, endpoint=path.strip("/"), view_func=view, methods=methods)

    def statuses(self, *paths: str, **options: Any) -> list[int]:
        client = self.app.test_client()
        return [client.get(path, **options).status_code for path in paths]


def test_default_limits_hold_for_each_route_by_itself() -> None:
    served = Served(default_limits=["1/minute"])
    for path in ("/a", "/b"):
        served.route(path)
    assert served.statuses("/a", "/b", "/a", "/none") == [200, 200, 429, 404]


def test_own_limits_override_default_ones_or_add_to_them() -> None:
    served = Served(default_limits=["1/minute"])
    served.route("/own", served.limiter.limit("2/minute"))
    served.route("/both", served.limiter.limit("2/minute", override_defaults=False))
    served.route("/free", served.limiter.exempt, served.limiter.limit("1/minute"))
    served.route("/posts", served.limiter.limit("3/minute", methods=["POST"]))
    assert served.statuses("/own", "/own", "/own") == [200, 200, 429]
    assert served.statuses("/both", "/both") == [200, 429]
    assert served.statuses("/free", "/free") == [200, 200]
    assert served.statuses("/posts", "/posts") == [200, 429]


def test_application_limits_hold_for_all_routes_together() -> None:
    served = Served(application_limits=["2/minute"])
    for path in ("/a", "/b", "/c"):
        served.route(path)
    assert served.statuses("/a", "/b", "/c") == [200, 200, 429]


def test_a_refusal_spends_nothing_of_other_limits() -> None:
    served = Served(application_limits=["3/hour"])
    served.route("/one", served.limiter.limit("1/hour"))
    served.route("/two")
    assert served.statuses("/one", "/one", "/one", "/one") == [200, 429, 429, 429]
    assert served.statuses("/two", "/two", "/two") == [200, 200, 429]


@pytest.mark.parametrize("above", [False, True], ids=["below the route", "above the route"])
def test_a_limit_holds_on_either_side_of_the_route(above: bool) -> None:
    served = Served()
    limit, route = served.limiter.limit("1/minute"), served.app.get("/view")

    def view() -> str:
        return "view"

    limit(route(view)) if above else route(limit(view))
    assert served.statuses("/view", "/view") == [200, 429]


def test_shared_limits_and_scopes() -> None:
    served = Served()
    shared = served.limiter.shared_limit("2/minute", scope="shared")
    for path in ("/a", "/b"):
        served.route(path, shared)
    served.route("/c", served.limiter.limit("1/minute", scope=lambda endpoint: endpoint))
    assert served.statuses("/a", "/b", "/a", "/b", "/c") == [200, 200, 429, 429, 200]


def test_blueprints_are_limited_and_exempt() -> None:
    served = Served(default_limits=["1/minute"])
    limited, free = Blueprint("limited", __name__), Blueprint("free", __name__)
    for blueprint in (limited, free):
        blueprint.get(f"/{blueprint.name}")(lambda: "view")
        blueprint.get(f"/{blueprint.name}/other", endpoint="other")(lambda: "view")
    limited.get("/limited/own", endpoint="own")(served.limiter.limit("3/minute")(lambda: "own"))
    nested = Blueprint("nested", __name__)
    nested.get("/nested")(lambda: "nested")
    limited.register_blueprint(nested)
    served.limiter.limit("2/minute")(limited)
    served.limiter.limit("1/minute")(nested)
    served.limiter.exempt(free)
    served.app.register_blueprint(limited)
    served.app.register_blueprint(free)
    assert served.statuses(*["/limited"] * 3, "/limited/other") == [200, 200, 429, 200]
    assert served.statuses(*["/limited/own"] * 4) == [200, 200, 200, 429]
    assert served.statuses("/nested", "/nested") == [200, 429]
    assert served.statuses(*["/free"] * 3) == [200, 200, 200]
    assert served.statuses(*["/static/none"] * 2) == [404, 404]


@pytest.mark.parametrize(
    ("grandchild", "told"),
    [
        (None, {"/parent": 2, "/child": 3, "/grandchild": 2}),
        (True, {"/parent": 2, "/child": 3, "/grandchild": 5}),
        (False, {"/parent": 2, "/child": 3, "/grandchild": 2}),
    ],
    ids=["no limit of its own", "overrides", "adds"],
)
def test_a_limit_of_a_blueprint_overrides_those_around_it(
    grandchild: bool | None, told: dict[str, int]
) -> None:
    served = Served(default_limits=["1/minute"])
    blueprints = [Blueprint(path.strip("/"), __name__) for path in told]
    for blueprint, path in zip(blueprints, told):
        blueprint.get(path)(lambda: "view")
    served.limiter.limit("2/minute")(blueprints[0])
    served.limiter.limit("3/minute")(blueprints[1])
    if grandchild is not None:
        served.limiter.limit("5/minute", override_defaults=grandchild)(blueprints[2])
    blueprints[1].register_blueprint(blueprints[2])
    blueprints[0].register_blueprint(blueprints[1])
    served.app.register_blueprint(blueprints[0])
    for path, admitted in told.items():
        assert served.statuses(*[path] * 6) == [200] * admitted + [429] * (6 - admitted)


def test_a_dot_in_an_endpoint_is_no_blueprint() -> None:
    served = Served(default_limits=["1/minute"])
    served.app.add_url_rule("/dotted", "no.blueprint", lambda: "view")
    assert served.statuses("/dotted", "/dotted") == [200, 429]


def test_requests_that_a_filter_passes_meet_no_limit() -> None:
    served = Served(application_limits=["1/minute"])
    served.limiter.request_filter(lambda: request.headers.get("X-Internal") == "yes")
    served.route("/view", served.limiter.limit("1/minute", override_defaults=False))
    internal = {"X-Internal": "yes"}
    assert served.statuses("/view", "/view", headers=internal) == [200, 200]
    assert served.statuses("/view", "/view") == [200, 429]
    assert served.statuses("/view", headers=internal) == [200]


def test_class_based_views() -> None:
    served = Served()

    class Decorated(MethodView):
        decorators = [served.limiter.limit("1/minute")]  # noqa: RUF012

        def get(self) -> str:
            return "get"

    class Method(MethodView):
        @served.limiter.limit("1/minute")
        def get(self) -> str:
            return "get"

        def post(self) -> str:
            return "post"

    served.app.add_url_rule("/class", view_func=Decorated.as_view("class"))
    served.app.add_url_rule("/method", view_func=Method.as_view("method"))
    assert served.statuses("/class", "/class", "/method", "/method") == [200, 429, 200, 429]
    assert served.app.test_client().post("/method").status_code == 200


def test_async_views_and_functions_that_are_no_views() -> None:
    served = Served()

    @served.app.get("/async")
    @served.limiter.limit("1/minute")
    async def view() -> str:
        return "async"

    @served.limiter.limit("1/minute")
    def helper() -> str:
        return "helper"

    served.app.get("/calls")(lambda: helper())
    assert served.statuses("/async", "/async", "/calls", "/calls") == [200, 429, 200, 429]
    assert helper() == "helper"  # Outside of a request it is not limited.


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"limit_value": lambda: "2/minute"}, [200, 200, 429]),
        ({"limit_value": "1/second; 2/hour", "cost": lambda: 2}, [429, 429, 429]),
        ({"limit_value": "1/minute", "methods": ["POST"]}, [200, 200, 200]),
        (
            {"limit_value": "1/minute", "exempt_when": lambda: "vip" in request.args},
            [200, 429, 429],
        ),
        ({"limit_value": "3/minute", "cost": 2}, [200, 429, 429]),
        ({"limit_value": "1/minute", "key_func": lambda: request.path}, [200, 429, 429]),
    ],
)
def test_options_choose_what_is_limited(options: Any, told: list[int]) -> None:
    served = Served()
    served.route("/view", served.limiter.limit(**options))
    assert served.statuses(*["/view"] * 3) == told


def test_methods_count_apart() -> None:
    served = Served()
    served.route("/view", served.limiter.limit("1/minute", per_method=True))
    client = served.app.test_client()
    assert [client.get("/view").status_code, client.post("/view").status_code] == [200, 200]
    assert [client.get("/view").status_code, client.post("/view").status_code] == [429, 429]


def test_a_refusal_has_the_error_its_message_and_its_headers() -> None:
    served = Served(on_breach=lambda decision: None)
    served.route("/view", served.limiter.limit("1/minute", error_message=lambda: "slow down"))

    @served.app.errorhandler(429)
    def handle(error: RateLimitExceeded) -> Any:
        return jsonify(error=error.description, retry_after=error.decision.retry_after), 429

    client = served.app.test_client()
    assert client.get("/view").status_code == 200
    refused = client.get("/view")
    assert refused.status_code == 429
    assert (refused.json or {})["error"] == "slow down"
    assert refused.headers["Retry-After"] == "60"


def test_a_response_of_ones_own_is_the_answer() -> None:
    served = Served(on_breach=lambda _: make_response("all"))
    served.route("/own", served.limiter.limit("1/minute", on_breach=lambda _: make_response("no")))
    served.route("/none", served.limiter.limit("1/minute", on_breach=lambda _: None))
    client = served.app.test_client()
    assert [client.get("/own").text for _ in range(2)] == ["/own", "no"]
    assert [client.get("/none").text for _ in range(2)] == ["/none", "all"]


def test_headers_stand_on_errors_of_the_application_and_say_what_is_left() -> None:
    served = Served(default_limits=["9/minute"])
    served.app.get("/denied", endpoint="denied")(lambda: abort(401))
    served.app.get("/boom", endpoint="boom")(lambda: str(1 // 0))
    client = served.app.test_client()
    for path, status in (("/denied", 401), ("/boom", 500)):
        response = client.get(path)
        assert (response.status_code, response.headers["X-RateLimit-Remaining"]) == (status, "8")
    with served.app.test_request_context("/denied"):
        assert served.limiter.current_limit is None
        served.limiter.check()
        assert served.limiter.current_limit is not None


def test_the_config_stands_for_options() -> None:
    served = Served(
        {
            "RATELIMIT_STORAGE_URI": "memory://",
            "RATELIMIT_DEFAULT": "2 per minute",
            "RATELIMIT_STRATEGY": "fixed-window",
            "RATELIMIT_HEADERS_ENABLED": "legacy",
            "RATELIMIT_KEY_PREFIX": "config",
        },
        storage_uri=None,
    )
    served.route("/view")
    told = served.app.test_client().get("/view").headers
    assert told["X-RateLimit-Limit"] == "2"
    assert "RateLimit" not in told
    assert served.statuses("/view", "/view") == [200, 429]
    served.limiter.enabled = False
    assert served.statuses("/view", "/view") == [200, 200]


def test_addresses_are_believed_behind_proxies_alone() -> None:
    served = Served(key_func=forwarded_address(["127.0.0.1"]), default_limits=["1/minute"])
    served.route("/view")
    told = [
        served.statuses("/view", headers={"X-Forwarded-For": forwarded})
        for forwarded in ("1.1.1.1", "9.9.9.9, 1.1.1.1", "2.2.2.2")
    ]
    assert told == [[200], [429], [200]]


def test_a_reservation_that_a_view_has_no_room_for_is_the_refusal_that_is_told() -> None:
    served = Served(key_func=lambda: "anna")
    tokens = hotcount.Limiter("memory://", "10/minute", name="tokens")

    @served.app.get("/spend/<int:n>")
    @served.limiter.limit("2/minute", scope="spend")
    def spend(n: int) -> str:
        with tokens.reserve("anna", n):
            return "spent"

    client = served.app.test_client()
    refused = [client.get("/spend/11") for _ in range(3)][-1]
    assert (refused.status_code, refused.headers["RateLimit-Policy"]) == (429, '"tokens";q=10;w=60')
    # They have given back what they took of the view's own limit.
    assert served.statuses("/spend/1", "/spend/1", "/spend/1") == [200, 200, 429]


def test_a_decorated_function_of_the_library_is_429() -> None:
    served = Served()
    limiter = hotcount.Limiter("memory://", "1/minute")
    served.route("/view", limiter.limit(key="all"))
    assert served.statuses("/view", "/view") == [200, 429]


@pytest.mark.parametrize(
    ("options", "error", "names"),
    [
        ({"key_func": "ip"}, TypeError, "key_func must be a function"),
        ({"storage_uri": None}, hotcount.ConfigError, "storage_uri is missing"),
        ({"strategy": "x"}, hotcount.ConfigError, "algorithm is 'x'"),
        ({"default_limits": ["often"]}, hotcount.ConfigError, "'often'"),
    ],
)
def test_bad_options_are_named_at_once(
    options: dict[str, Any], error: type[Exception], names: str
) -> None:
    with pytest.raises(error, match=names):
        Served(**options)


@pytest.mark.parametrize(
    ("options", "error", "names"),
    [
        ({"limit_value": "often"}, hotcount.ConfigError, "'often'"),
        ({"methods": "GET"}, TypeError, r"\['GET'\]"),
        ({"key": "ip"}, TypeError, "key"),
        ({"view": 7}, TypeError, "decorates views"),
    ],
)
def test_bad_limits_are_named_where_they_stand(
    options: dict[str, Any], error: type[Exception], names: str
) -> None:
    view: Any = options.pop("view", lambda: "view")
    with pytest.raises(error, match=names):
        Served().limiter.limit(**{"limit_value": "1/minute", **options})(view)


def test_a_request_that_is_answered_in_spite_of_a_refusal_has_spent_the_others() -> None:
    served = Served(application_limits=["3/hour"])
    helper: Any = served.limiter.limit("1/hour")(lambda: "helper")

    @served.app.get("/view")
    def view() -> Any:
        try:
            return helper()
        except RateLimitExceeded:
            return "without"

    assert served.statuses(*["/view"] * 5) == [200, 200, 200, 429, 429]


def test_each_call_of_a_limited_function_counts() -> None:
    served = Served()
    helper: Any = served.limiter.limit("2/hour")(lambda: "helper")
    served.app.get("/once", endpoint="once")(lambda: helper())
    served.app.get("/thrice", endpoint="thrice")(lambda: "".join(helper() for _ in range(3)))
    assert served.statuses("/thrice", "/once", "/once", "/once") == [429, 200, 200, 429]


def test_requests_that_share_an_application_context_count_by_themselves() -> None:
    served = Served(default_limits=["3/hour"])
    served.route("/other")
    served.route("/own", served.limiter.limit("1/hour"))
    with served.app.app_context():
        paths = ["/other", "/other", "/own", "/own", "/other", "/other", "/none"]
        assert served.statuses(*paths) == [200, 200, 200, 429, 200, 429, 404]
        assert "RateLimit" not in served.app.test_client().get("/none").headers


def test_a_blueprint_under_another_name_and_one_inside_an_exempt_one() -> None:
    served = Served(default_limits=["1/hour"])
    parent, child = Blueprint("parent", __name__), Blueprint("child", __name__)
    child.get("/child")(lambda: "child")
    parent.get("/parent")(lambda: "parent")
    parent.register_blueprint(child)
    served.limiter.exempt(parent)
    renamed = Blueprint("renamed", __name__)
    renamed.get("/renamed")(lambda: "renamed")
    served.limiter.limit("2/hour")(renamed)
    served.app.register_blueprint(parent)
    served.app.register_blueprint(renamed, name="other")
    assert served.statuses(*["/parent"] * 3, *["/child"] * 2) == [200, 200, 200, 200, 429]
    assert served.statuses(*["/renamed"] * 3) == [200, 200, 429]


def test_the_message_is_that_of_the_limit_that_refuses() -> None:
    served = Served(application_limits=["1/hour"])
    served.route("/view", served.limiter.limit("100/day", error_message="daily"))
    client = served.app.test_client()
    assert [client.get("/view").status_code for _ in range(2)] == [200, 429]
    assert "daily" not in client.get("/view").text


def test_plans_without_a_limit_names_that_meet_and_automatic_options() -> None:
    served = Served(application_limits=["3/hour"])
    served.route("/free", served.limiter.limit(lambda: None), methods=["GET"])
    served.route("/application", served.limiter.limit("3/hour"), methods=["GET"])
    served.route("/one", served.limiter.limit("1/hour"), methods=["GET"])
    client = served.app.test_client()
    assert [client.options("/one").status_code for _ in range(5)] == [200] * 5
    assert served.statuses("/one", "/free", "/application", "/free") == [200, 200, 200, 429]


def test_retry_after_of_ones_own_stays() -> None:
    served = Served(default_limits=["9/hour"])
    served.app.get("/busy")(lambda: ("busy", 503, {"Retry-After": "120"}))
    assert served.app.test_client().get("/busy").headers["Retry-After"] == "120"


def test_config_of_flask_limiter_that_is_not_read_is_named() -> None:
    with pytest.raises(hotcount.ConfigError, match="the config has RATELIMIT_STORAGE_OPTIONS"):
        Served({"RATELIMIT_STORAGE_OPTIONS": {}})


def test_a_limiter_without_an_application_says_so() -> None:
    limiter, app = Limiter(get_remote_address, storage_uri="memory://"), Flask(__name__)
    app.get("/")(limiter.limit("1/minute")(lambda: "view"))
    app.testing = True
    with pytest.raises(hotcount.ConfigError, match=r"call init_app\(app\)"):
        app.test_client().get("/")


def test_a_key_function_without_a_key_is_named() -> None:
    served = Served(key_func=lambda: None, default_limits=["1/minute"])
    served.route("/view")
    served.app.testing = True
    with pytest.raises(hotcount.ConfigError, match="returned None"):
        served.statuses("/view")
