"""Plans with tiers: requests a minute, and a budget of tokens a day, in front of a language model.

    pip install . flask gunicorn    # in a clone of hotcount, with a Redis
    STORE=redis://localhost gunicorn --chdir examples/flask --workers 2 --threads 4 app:app
    curl -H 'X-Api-Key: free-key' -d 'prompt=Tell me a story' http://127.0.0.1:8000/generate
    curl -H 'X-Api-Key: free-key' http://127.0.0.1:8000/usage

How many tokens an answer takes is known when it is there. So a request reserves the most that it
may take, others find that taken meanwhile, and only what was used is charged. A request that fails
is charged nothing, and one whose process dies gives its reservation back after the lease.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass

import hotcount
from flask import Flask, abort, jsonify, request
from flask.typing import ResponseReturnValue
from hotcount.integrations.flask import Limiter


@dataclass(frozen=True)
class Tier:
    requests: str
    tokens: str
    longest: int  # Maximum of tokens in one answer.


PLANS = {
    "free": Tier("10/minute", "2000/day", 400),
    "pro": Tier("300/minute burst 50", "1000000/day", 4000),
}
CUSTOMERS = {"free-key": "free", "pro-key": "pro"}
STORE = hotcount.Redis(os.environ.get("STORE", "redis://localhost"))


def api_key() -> str:
    key = request.headers.get("X-Api-Key", "")
    if key not in CUSTOMERS:
        abort(401, "X-Api-Key is missing or unknown")
    return key


def plan() -> Tier:
    return PLANS[CUSTOMERS[api_key()]]


app = Flask(__name__)
# The extension answers a refusal of its own limits or of `budget` with 429 and rate limit headers.
limiter = Limiter(api_key, app=app, store=STORE)
# Each call passes the rate of the customer's plan. The window begins at midnight UTC.
budget = hotcount.Limiter(STORE, "1/day", name="tokens", algorithm="fixed_window")


@app.post("/generate")
@limiter.limit(lambda: plan().requests)
def generate() -> ResponseReturnValue:
    own = plan()
    with budget.reserve(api_key(), own.longest, rate=own.tokens, lease=60) as reserved:
        text, used = model(request.form.get("prompt", ""), own.longest)
        left = reserved.commit(used).remaining
    return jsonify(text=text, used=used, left=left)


@app.get("/usage")
def usage() -> ResponseReturnValue:
    return jsonify(budget.peek(api_key(), rate=plan().tokens))


def model(prompt: str, longest: int) -> tuple[str, int]:
    """Stands in for a language model: returns a text and the number of tokens it took."""
    time.sleep(0.2)
    used = random.randint(1, longest)
    return f"{prompt}: {used} tokens of wisdom", used
