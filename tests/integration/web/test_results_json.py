"""Every result, batch and column as JSON, in each framework without an encoder of the user's."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import flask
import hotcount
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from flask.json.provider import JSONProvider
from hotcount import batches
from hotcount.integrations.flask import Limiter, get_remote_address, install
from hotcount.results import Result

from tests.integration.package.test_results import example
from tests.support.limit_apps import configure_django

configure_django()

from rest_framework.renderers import JSONRenderer  # noqa: E402
from rest_framework.response import Response  # noqa: E402

RESULTS = [each for each in vars(hotcount).values() if isinstance(each, type)]
VALUES: dict[str, Any] = {
    each.__name__: example(each) for each in RESULTS if issubclass(each, Result)
} | {"Drift of a UUID": hotcount.Drift(uuid.UUID(int=9), 1, 2), "Upsert": hotcount.Upsert.STALE}
COUNTS = hotcount.Counts([hotcount.Count(7, True, 1.5, "sql", 0)])
WAITS = hotcount.Limiter("memory://", "2/minute").hit_many(["k", "k"], [1, 3])
BATCHES: dict[str, Any] = {
    "Int64Batch": hotcount.Int64Batch([1, -(2**63)]),
    "AddedBatch": hotcount.AddedBatch([1, hotcount.Queued(3, True)]),
    "Decisions": WAITS,
    "Upserts": hotcount.Upserts([hotcount.Upsert.APPLIED, hotcount.Upsert.ABSENT]),
    "Casts": hotcount.Casts([hotcount.Cast(True, True, 0, 1), hotcount.Cast(True, None, None, 1)]),
    "Counts": COUNTS,
    "none": hotcount.Counts([]),
    "a column of int": COUNTS.value,
    "a column of bool": COUNTS.exact,
    "a column of float": COUNTS.as_of,
    "a column with NaN": WAITS.retry_after,
}


def in_fastapi(value: Any) -> str:
    app = FastAPI()
    app.add_api_route("/", lambda: {"it": value}, response_model=None)
    return TestClient(app).get("/").text


def in_flask(value: Any) -> str:
    app = flask.Flask("app")
    install(app)
    app.add_url_rule("/", view_func=lambda: flask.jsonify(it=value))
    return app.test_client().get("/").text


def in_rest_framework(value: Any) -> str:
    shown: bytes = JSONRenderer().render(Response({"it": value}).data)
    return shown.decode()


def plain(value: Any) -> Any:
    """What the JSON of a result or batch is."""
    if isinstance(value, Result):
        return {name: plain(field) for name, field in value.to_dict().items()}
    if isinstance(value, (batches.Values, tuple, list)):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, uuid.UUID) else None if value != value else value


@pytest.mark.parametrize("render", [in_fastapi, in_flask, in_rest_framework])
@pytest.mark.parametrize("name", [*VALUES, *BATCHES])
def test_a_result_or_batch_is_json(name: str, render: Callable[[Any], str]) -> None:
    value = {**VALUES, **BATCHES}[name]

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    assert json.loads(render(value), parse_constant=refuse) == {"it": plain(value)}


def test_every_class_of_results_and_batches_is_in_the_table() -> None:
    assert len([name for name in VALUES if name[0].isupper()]) >= 13
    of_batches = {each.__name__ for each in batches.Batch.__subclasses__()}
    assert of_batches <= BATCHES.keys()


def test_the_limiter_of_flask_installs_it() -> None:
    app = flask.Flask("app")
    Limiter(get_remote_address, app=app, storage_uri="memory://")
    with app.app_context():
        assert flask.jsonify(COUNTS.value).json == [7]
        with pytest.raises(TypeError, match="object is not JSON serializable"):
            flask.jsonify(object())


def test_a_json_provider_without_a_default_is_named() -> None:
    class Own(JSONProvider):
        def dumps(self, obj: Any, **_: Any) -> str:
            return "own"

    app = flask.Flask("app")
    app.json = Own(app)
    with pytest.raises(hotcount.ConfigError, match="a Own, has no `default`"):
        install(app)
    Limiter(get_remote_address, app=app, storage_uri="memory://")
    with app.app_context():
        assert flask.jsonify(1).get_data(as_text=True) == "own"
