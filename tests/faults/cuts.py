"""What the tests of cut connections share: what a caller was told, against what was counted."""

import time

import hotcount
import pytest

from tests.faults.proxy import CLIENT_TO_SERVER, SERVER_TO_CLIENT
from tests.support.servers import RedisServer

UNKNOWN = hotcount.OutcomeUnknownError
NOT_APPLIED = (hotcount.UnavailableError, hotcount.DeadlineError)

DIRECTIONS = pytest.mark.parametrize(
    "direction", [CLIENT_TO_SERVER, SERVER_TO_CLIENT], ids=["sent", "answered"]
)


def settle(server: RedisServer, keys: list[str]) -> list[int]:
    """The values at the server, once it has read all it was sent."""
    with server.redis() as direct:
        counter = hotcount.Counter(direct)
        before: list[int] = []
        while True:
            now = list(counter.get_many(keys))
            if now == before:
                return now
            before = now
            time.sleep(0.001)


class Outcomes:
    """How many adds of batches of ones ended how; each is checked against what was counted."""

    def __init__(self) -> None:
        self.ok = self.unknown = self.not_applied = 0

    def check(self, batch: hotcount.Int64Batch, before: list[int], now: list[int]) -> None:
        for index, value in enumerate(now):
            error = batch.errors.get(index)
            added = value - before[index]
            if error is None:
                assert (added, batch[index]) == (1, value)
                self.ok += 1
            elif isinstance(error, UNKNOWN):
                assert added in (0, 1)
                self.unknown += 1
            else:
                assert isinstance(error, NOT_APPLIED)
                assert added == 0, f"said to be not applied: {error}"
                self.not_applied += 1
