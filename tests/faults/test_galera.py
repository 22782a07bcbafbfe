"""Votes on three nodes of a MariaDB Galera cluster: on all at once, and while one is cut off,
is killed and joins again.

After each: the live votes are those acknowledged and some of those whose outcome is unknown, none
that was said not to be applied, and every node counts them alike.
"""

import contextlib
import itertools
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hotcount
import pytest
from hotcount import _doctor_sql
from hotcount._votes_base import Strategy

from tests.faults.proxy import FaultProxy
from tests.support.eventually import eventually
from tests.support.fired import fired
from tests.support.galera_trio import GaleraNode, GaleraTrio, make_tables, votes_at
from tests.support.mariadb_server import MariaDbServer
from tests.support.servers import free_port
from tests.support.together import beside, together

# MySQL has no Galera.
pytestmark = [pytest.mark.server, pytest.mark.mariadb_only("Galera")]

PAGE = Path(__file__).parents[2] / "docs/how-to/galera.md"
STRATEGIES = pytest.mark.parametrize("strategy", ["batched", "slotted", "naive"])


def votes_at_several(
    trio: GaleraTrio, place: str, *numbers: int, strategy: Strategy = "batched", timeout: float = 30
) -> hotcount.Votes:
    hosts = ",".join(f"127.0.0.1:{trio.nodes[number].port}" for number in numbers)
    database = hotcount.Database(f"mariadb://app@{hosts}/{place}", timeout=timeout)
    return hotcount.Votes(database, None, strategy)


@contextlib.contextmanager
def left(trio: GaleraTrio, number: int) -> Iterator[None]:
    """The node leaves as planned, and joins again."""
    trio.nodes[number].stop()
    try:
        trio.await_size(2)
        yield
    finally:
        trio.nodes[number].begin()
        trio.await_size(3)


def live_users(node: GaleraNode, place: str) -> set[int]:
    sql = "SELECT user_id FROM vote_live WHERE item_id = 1"
    return {int(row[0]) for row in node.execute(sql, database=place)}


def conflicts(trio: GaleraTrio) -> int:
    """Transactions that a node refused or ended because another node's came first."""
    names = ("local_cert_failures", "local_bf_aborts")
    return sum(int(node.status(name)) for node in trio.nodes for name in names)


@STRATEGIES
def test_votes_on_three_nodes_lose_none(trio: GaleraTrio, place: str, strategy: Strategy) -> None:
    make_tables(trio, place, strategy)
    before = conflicts(trio)
    rounds = itertools.count(1)
    with ExitStack() as stack:
        nodes = [stack.enter_context(votes_at(node, place, strategy)) for node in trio.nodes]

        def vote(index: int, first: int) -> None:
            for number in range(first, first + 12):
                items = [1, 2, 3] if (index + number) % 2 else [3, 2, 1]
                # Fresh votes of one's own, and one that everybody changes.
                users = [1000 * (index + 1) + number, 7, 7]
                nodes[index % 3].cast_many(items, users, [1, number % 5, index % 4])

        def conflict() -> bool:
            first = 12 * next(rounds)
            together(lambda index: vote(index, first), 9)
            return conflicts(trio) > before

        eventually(conflict, 60)
        # hotcount waits for what other nodes have acknowledged; these plain reads come after that.
        counted = [list(map(int, v.count_many([1, 2, 3], consistency="exact"))) for v in nodes]
        sums = trio.nodes[0].execute(
            "SELECT SUM(val) FROM vote GROUP BY item_id ORDER BY item_id", database=place
        )
        assert counted == [[int(total) for (total,) in sums]] * 3
        mine = 3 * 12 * (next(rounds) - 1)
        own = "SELECT COUNT(*) FROM vote WHERE user_id >= 1000"
        assert trio.nodes[0].execute(own, database=place) == [(3 * mine,)]
        nodes[0].flush()
        assert nodes[1].reconcile(dry_run=True) == []
    fired("nodes conflict", conflicts(trio) - before)


def test_counters_and_limits_on_three_nodes_at_once_are_exact(trio: GaleraTrio, place: str) -> None:
    with ExitStack() as stack:
        databases = [
            stack.enter_context(hotcount.Database(node.url(place), timeout=30))
            for node in trio.nodes
        ]
        slots = [hotcount.SlottedCounter(each, slots=2) for each in databases]
        limits = [hotcount.Limiter(each, "10/hour") for each in databases]
        slots[0].create_table()
        limits[0].create_table()

        def work(index: int) -> int:
            admitted = 0
            for number in range(8):
                slots[index % 3].add("hot", op_id=f"{index // 3} {number}")
                admitted += bool(limits[index % 3].hit("hot"))
            return admitted

        assert sum(together(work, 6)) == 10
        assert [each.get("hot") for each in slots] == [16] * 3


def test_what_one_node_acknowledged_is_waited_for_at_another(trio: GaleraTrio, place: str) -> None:
    make_tables(trio, place)
    with votes_at(trio.nodes[0], place) as here, votes_at(trio.nodes[1], place) as there:
        here.cast(1, 1)
        assert int(there.count(1, consistency="exact")) == 1
        told: list[int] = []
        changed: list[bool | None] = []
        with trio.nodes[1].connect() as session, session.cursor() as cursor:
            # It applies nothing meanwhile.
            cursor.execute("FLUSH TABLES WITH READ LOCK")
            here.cast(1, 2)
            here.retract(1, 1)
            reader = threading.Thread(
                target=lambda: told.append(int(there.count(1, consistency="exact")))
            )
            # By its old state it would find this vote unchanged.
            voter = threading.Thread(target=lambda: changed.append(there.cast(1, 1).changed))
            reader.start()
            time.sleep(0.5)
            assert told == [], "an answer without what the other node has acknowledged"
            voter.start()
            time.sleep(0.2)
            cursor.execute("UNLOCK TABLES")
        reader.join()
        voter.join()
        assert changed == [True]
        assert told[0] in (1, 2)
        assert int(here.count(1, consistency="exact")) == 2


@pytest.mark.parametrize(
    "another_leaves",
    [False, pytest.param(True, marks=pytest.mark.long)],
    ids=["", "another-leaves"],
)
def test_a_waiting_call_leaves_no_node(trio: GaleraTrio, place: str, another_leaves: bool) -> None:
    """Another node takes writes too, and sees fewer nodes than before: that says nothing about this
    one, whose session would be cut off, and whose lock another node's transaction would break."""
    make_tables(trio, place, "naive")
    with votes_at_several(trio, place, 0, 1, 2, strategy="naive") as votes:
        votes.cast(1, 1)
        told: list[bool] = []
        voter = threading.Thread(target=lambda: told.append(votes.cast(1, 2).changed))
        with trio.nodes[0].connect(place) as session, session.cursor() as cursor:
            cursor.execute("UPDATE item SET vote_count = vote_count WHERE id = 1")
            voter.start()
            with left(trio, 2) if another_leaves else contextlib.nullcontext():
                time.sleep(2.5)
                assert told == [], "the other node's transaction came first"
                session.commit()
                voter.join()
        assert told == [True]
        assert int(votes.count(1, consistency="exact")) == 2


class Outcomes:
    """Votes for item 1 by users of their own, and what each caller was told."""

    def __init__(self) -> None:
        self.told: dict[str, set[int]] = {"cast": set(), "unknown": set(), "not applied": set()}
        self.doubts: list[str] = []
        self.refusals: list[str] = []
        self._users = itertools.count()

    def vote(self, votes: hotcount.Votes, timeout: float = 2) -> str:
        user = next(self._users)
        try:
            votes.cast(1, user, timeout=timeout)
            outcome = "cast"
        except hotcount.OutcomeUnknownError as error:
            outcome = "unknown"
            self.doubts.append(str(error))
        except (hotcount.UnavailableError, hotcount.DeadlineError) as error:
            self.refusals.append(str(error))
            outcome = "not applied" if "nothing was applied" in str(error) else f"said: {error}"
        self.told[outcome].add(user)
        return outcome

    def check(self, trio: GaleraTrio, place: str, strategy: Strategy = "batched") -> None:
        for node in trio.nodes:
            with votes_at(node, place, strategy) as votes:
                count = int(votes.count(1, consistency="exact"))
            live = live_users(node, place)
            assert self.told["cast"] <= live, "an acknowledged vote is lost"
            assert not live & self.told["not applied"]
            assert count == len(live)


def voting(outcomes: Outcomes, votes: hotcount.Votes, timeout: float = 2) -> Any:
    def until(ended: threading.Event) -> None:
        while not ended.is_set():
            outcomes.vote(votes, timeout)

    return until


@pytest.mark.long
def test_a_node_that_is_cut_off_applies_nothing(trio: GaleraTrio, place: str) -> None:
    make_tables(trio, place)
    outcomes = Outcomes()
    with (
        votes_at(trio.nodes[1], place) as cut,
        votes_at(trio.nodes[0], place) as other,
        beside(*[voting(outcomes, cut, 10)] * 4, *[voting(outcomes, other)] * 2),
    ):
        eventually(lambda: len(outcomes.told["cast"]) > 50)
        trio.cut_off(1)
        assert outcomes.vote(cut) == "not applied"
        with pytest.raises(hotcount.UnavailableError, match="nothing was applied"):
            cut.cast(1, 10**6, timeout=1)
        # The COMMIT that was under way.
        assert any("(1180, " in doubt for doubt in outcomes.doubts), outcomes.doubts
        done = len(outcomes.told["cast"])
        eventually(lambda: len(outcomes.told["cast"]) > done + 20)  # The others go on.
        trio.let_back(1)
        back = time.monotonic()
        eventually(lambda: outcomes.vote(cut) == "cast")
        assert time.monotonic() - back < 4
    outcomes.check(trio, place)


@contextlib.contextmanager
def away(trio: GaleraTrio, number: int, how: str) -> Iterator[None]:
    node = trio.nodes[number]
    if how == "cut off":
        trio.cut_off(number)
    else:
        node.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        if how == "cut off":
            trio.let_back(number)
        else:
            node.send_signal(signal.SIGCONT)
            # It does not know yet that the others went on without it, and they do.
            eventually(lambda: all(each.status("cluster_size") == "3" for each in trio.nodes), 60)
            eventually(node.is_ready, 60)


@pytest.mark.long
@pytest.mark.parametrize("how", ["cut off", "silent"])
@STRATEGIES
def test_votes_of_several_hosts_leave_a_node_that_is_gone(
    trio: GaleraTrio, place: str, strategy: Strategy, how: str
) -> None:
    make_tables(trio, place, strategy)
    outcomes = Outcomes()
    with (
        votes_at_several(trio, place, 1, 0, 2, strategy=strategy, timeout=20) as votes,
        beside(*[voting(outcomes, votes, 20)] * 4),
    ):
        eventually(lambda: len(outcomes.told["cast"]) > 50)
        with away(trio, 1, how):
            begun = time.monotonic()
            assert outcomes.vote(votes, 20) == "cast", outcomes.refusals
            assert time.monotonic() - begun < 15, "it waited for its deadline"
            done = len(outcomes.told["cast"])
            # A vote whose COMMIT was lost is unknown at once: its group does not wait for its 20 s.
            eventually(lambda: len(outcomes.told["cast"]) > done + 50, 10)
            # One that is gone is passed over from the beginning, too.
            with votes_at_several(trio, place, 1, 2, strategy=strategy) as fresh:
                assert outcomes.vote(fresh, 10) == "cast"
    # A COMMIT that was under way may be unknown; no call failed.
    assert outcomes.refusals == []
    assert all("may or may not be applied" in doubt for doubt in outcomes.doubts)
    outcomes.check(trio, place, strategy)


@pytest.mark.long
def test_a_silent_node_is_left_by_its_older_sessions(trio: GaleraTrio, place: str) -> None:
    """The others are as many as the cluster was when the session began."""
    make_tables(trio, place)
    outcomes = Outcomes()
    with votes_at_several(trio, place, 1, 0, 2, timeout=60) as votes:
        with left(trio, 2):
            assert outcomes.vote(votes, 30) == "cast"
        # A session that is idle for 2 s is asked whether its node is there. This one is sent the
        # vote, in one statement that commits, too.
        assert outcomes.vote(votes, 30) == "cast"
        with away(trio, 1, "silent"):
            begun = time.monotonic()
            assert outcomes.vote(votes, 60) in ("cast", "unknown")
            assert time.monotonic() - begun < 30, "it waited for its deadline"
            assert outcomes.vote(votes, 60) == "cast"
    outcomes.check(trio, place)


@pytest.mark.long
def test_a_call_without_a_node_names_each_refusal(trio: GaleraTrio, place: str) -> None:
    make_tables(trio, place)
    url = f"mariadb://app@127.0.0.1:{trio.nodes[1].port},127.0.0.1:{free_port()}/{place}"
    with hotcount.Votes(hotcount.Database(url, timeout=30)) as votes:
        votes.cast(1, 1)
        trio.cut_off(1)
        try:
            with pytest.raises(hotcount.UnavailableError) as caught:
                votes.cast(1, 2, timeout=2)
        finally:
            trio.let_back(1)
        said = str(caught.value)
        assert "(1047, " in said
        assert "error: 111" in said
        assert said.endswith("nothing was applied")
        assert votes.cast(1, 2).changed
        assert int(votes.count(1, consistency="exact")) == 2


@pytest.mark.long
def test_a_node_that_is_killed_loses_and_doubles_nothing(trio: GaleraTrio, place: str) -> None:
    make_tables(trio, place)
    outcomes = Outcomes()
    with (
        votes_at(trio.nodes[2], place) as killed,
        votes_at(trio.nodes[0], place) as other,
        beside(*[voting(outcomes, killed)] * 4, *[voting(outcomes, other)] * 2),
    ):
        eventually(lambda: len(outcomes.told["cast"]) > 50)
        trio.nodes[2].kill()
        trio.await_size(2)
        done = len(outcomes.told["cast"])
        eventually(lambda: len(outcomes.told["cast"]) > done + 20)
        trio.nodes[2].begin()
        eventually(lambda: outcomes.vote(killed) == "cast")
    trio.await_size(3)
    outcomes.check(trio, place)


@pytest.mark.long
def test_doctor_asks_each_node_of_a_url_with_several(
    trio: GaleraTrio, place: str, mariadb_server: MariaDbServer
) -> None:
    def judged(*more: str) -> tuple[str, str]:
        hosts = ",".join((*(f"127.0.0.1:{node.port}" for node in trio.nodes), *more))
        (found,) = _doctor_sql.hosts(f"mariadb://root@{hosts}/mysql")
        return found.state, found.found

    assert judged()[0] == "ok"
    with FaultProxy(mariadb_server.socket) as proxy:
        stranger = f"127.0.0.1:{proxy.port}"
        state, found = judged(stranger)
    assert (state, found.startswith(f"{stranger} takes writes outside")) == ("unsafe", True), found
    trio.cut_off(1)
    try:
        state, found = judged()
        assert (state, found.startswith(f"127.0.0.1:{trio.nodes[1].port}: ")) == ("warning", True)
        # It begins a cluster of its own.
        trio.nodes[1].set_provider("pc.bootstrap=1")
        eventually(trio.nodes[1].is_ready)
        assert judged()[0] == "unsafe"
    finally:
        trio.nodes[1].kill()
        trio.nodes[1].begin()
        trio.await_size(3)


def test_the_page_about_galera_does_what_it_shows(
    trio: GaleraTrio, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in trio.nodes)
    exec(re.sub(r'"mariadb://[^"]*"', f'"mariadb://app@{hosts}/{place}"', block), {})
    assert capsys.readouterr().out == "True\n"
