"""Results in a web application: what FastAPI returns and pydantic has as fields."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import hotcount
import pydantic
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hotcount import aio

VOTES = hotcount.Votes("sqlite:///:memory:", missing_items="create")
AIO_VOTES = aio.Votes("sqlite:///:memory:", missing_items="create", user_type=uuid.UUID)
LIMITER = hotcount.Limiter("memory://", "2/minute", name="api")
AIO_LIMITER = aio.Limiter("memory://", "2/minute", name="api")

app = FastAPI()


@app.post("/votes/{item}/{user}")
def vote(item: int, user: int, with_count: bool = False) -> hotcount.Cast:
    return VOTES.cast(item, user, with_count=with_count)


@app.post("/aio/{item}/{user}", response_model=hotcount.Cast)
async def vote_in_a_loop(item: int, user: uuid.UUID) -> Any:
    return await AIO_VOTES.cast(item, user)


@app.post("/many/{item}")
def vote_often(item: int, users: list[int]) -> list[hotcount.Cast]:
    return list(VOTES.cast_many([item] * len(users), users))


@app.get("/votes/{item}")
def count(item: int) -> hotcount.Count:
    return VOTES.count(item)


@app.get("/counts")
def counts() -> hotcount.Counts:
    return VOTES.count_many([4, 5])


@app.get("/votes-of/{user}")
async def votes_of(user: int) -> hotcount.Int64Batch:
    return VOTES.get_many([4, 5], user)


@app.get("/values")
def values() -> hotcount.Column[int]:
    return VOTES.count_many([4, 5]).value


@app.get("/hits/{key}")
async def hit(key: str) -> hotcount.Decision:
    return await AIO_LIMITER.hit(key)


@app.get("/contract")
def contract() -> hotcount.Contract:
    return VOTES.contract()


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    VOTES.create_tables()
    with TestClient(app) as client:
        client.portal.call(AIO_VOTES.create_tables)  # type: ignore[union-attr]
        yield client


def test_a_cast_is_a_json_object(client: TestClient) -> None:
    now = {"counted": True, "value": 1, "pending": False, "count": None}
    first, again = {**now, "changed": True, "previous": 0}, {**now, "changed": False, "previous": 1}
    for path in ("/votes/1/1", f"/aio/1/{uuid.UUID(int=1)}"):
        assert client.post(path).json() == first
        assert client.post(path).json() == again
    assert client.post("/many/3", json=[1, 2, 1]).json() == [first, first, again]
    told = client.post("/votes/1/2?with_count=true").json()["count"]
    assert (told["value"], told["exact"], told["source"]) == (2, True, "sql")


def test_a_count_is_a_json_object(client: TestClient) -> None:
    client.post("/many/4", json=list(range(1200)))
    found = client.get("/votes/4").json()
    assert found.pop("as_of") > 1.7e9
    assert found == {"value": 1200, "exact": True, "source": "sql", "pending": 0}


def test_batches_and_columns_are_json_arrays(client: TestClient) -> None:
    client.post("/many/4", json=[1, 2])
    counts = client.get("/counts").json()
    numbers = [count["value"] for count in counts]
    assert (numbers[1], counts[0]["source"]) == (0, "sql")
    assert client.get("/votes-of/1").json() == [1, 0]
    assert client.get("/values").json() == numbers
    schema = client.get("/openapi.json").json()["paths"]["/counts"]["get"]["responses"]["200"]
    assert schema["content"]["application/json"]["schema"]["type"] == "array"


def test_a_decision_and_a_contract_are_json_objects(client: TestClient) -> None:
    allowed = client.get("/hits/k").json()
    assert (allowed["allowed"], allowed["remaining"], allowed["retry_after"]) == (True, 1, 0.0)
    client.get("/hits/k")
    denied = client.get("/hits/k").json()
    assert (denied["allowed"], denied["reason"], denied["policy"]) == (False, "limited", "api")
    assert client.get("/contract").json()["strategy"] == "batched"


def test_openapi_knows_the_fields_of_response_models(client: TestClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    kinds = {
        name: [each.get("type", each.get("$ref")) for each in spec.get("anyOf", [spec])]
        for name, spec in schemas["Cast"]["properties"].items()
    }
    assert kinds == {
        "counted": ["boolean"],
        "changed": ["boolean", "null"],
        "previous": ["integer", "null"],
        "value": ["integer"],
        "pending": ["boolean"],
        "count": ["#/components/schemas/Count", "null"],
    }
    assert list(schemas["Count"]["properties"]) == [
        *("value", "exact", "as_of", "source", "pending")
    ]
    assert {"type": "null"} in schemas["Decision"]["properties"]["retry_after"]["anyOf"]


class Everything(pydantic.BaseModel):
    cast: hotcount.Cast
    casts: list[hotcount.Cast]
    batch: hotcount.Casts
    votes: hotcount.Int64Batch
    exact: hotcount.Column[bool]
    as_of: hotcount.Column[float]
    count: hotcount.Count
    decision: hotcount.Decision | None
    try_add: hotcount.TryAdd
    rate: hotcount.Rate
    drift: hotcount.Drift
    flush: hotcount.FlushReport
    contract: hotcount.Contract
    round: hotcount.SyncRound


def test_a_pydantic_model_has_results_as_fields() -> None:
    VOTES.create_tables()
    cast = VOTES.cast(9, 1, with_count=True)
    model = Everything(
        cast=cast,
        casts=list(VOTES.cast_many([9, 9], [2, 3])),
        batch=VOTES.cast_many([9, 9], [2, 3]),
        votes=VOTES.get_many([9, 10], 2),
        exact=VOTES.count_many([9]).exact,
        as_of=VOTES.count_many([]).as_of,
        count=VOTES.count(9),
        decision=LIMITER.hit("k"),
        try_add=hotcount.Counter("memory://").try_add("k"),
        rate=LIMITER.rate,
        drift=hotcount.Drift(uuid.UUID(int=9), 1, 2),
        flush=VOTES.flush(),
        contract=VOTES.contract(),
        round=hotcount.SyncRound(1, 2, 3, 4, 5, 6, 7),
    )
    assert model.cast is cast
    assert model.count == 3
    copied = Everything.model_validate_json(model.model_dump_json())
    assert copied == model
    assert copied.drift == model.drift
    assert type(copied.count) is hotcount.Count
    assert (type(copied.votes), copied.exact.tolist()) == (hotcount.Int64Batch, [True])
    assert model.model_dump()["casts"][0] == {
        "counted": True,
        "changed": True,
        "previous": 0,
        "value": 1,
        "pending": False,
        "count": None,
    }
    with pytest.raises(pydantic.ValidationError, match="count\\.value"):
        Everything.model_validate({**model.model_dump(), "count": {"value": "many"}})
