"""`hotcount doctor` on redis+cluster://: the whole cluster, and the settings of each primary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import hotcount
from hotcount import _doctor_redis
from hotcount._doctor_finding import IN_REDIS, Finding, hosts_of, is_remote

SLOTS = 16384
# Seconds that a store waits for a silent server. With a shorter cluster-node-timeout a failover
# begins while the store still waits.
SILENCE_LIMIT = 1.5
# Seconds. With a longer cluster-node-timeout, calls with usual timeouts end before a failover.
LATE = 15.0
# The maximum number of moving slots that a finding names.
MOST_NAMED = 3


@dataclass(frozen=True)
class Node:
    """A line of CLUSTER NODES."""

    name: str
    address: str
    flags: frozenset[str]
    primary: str
    slots: int

    @property
    def is_primary(self) -> bool:
        return "master" in self.flags

    @property
    def fails(self) -> bool:
        return "fail" in self.flags


@dataclass(frozen=True)
class PrimaryReplies:
    """The replies of one primary."""

    address: str
    info: dict[str, str]
    config: dict[str, str]
    # The slots that this primary gives away or receives: (slot, node id of its owner, node id of
    # its next owner).
    moving: frozenset[tuple[int, str, str]]


def is_cluster(url: str) -> bool:
    return url.partition("://")[0].lower().endswith("+cluster")


def examine(url: str) -> list[Finding]:
    """The findings: reads the nodes from the first host that answers, then asks each primary."""
    findings = []
    for host in hosts_of(url):
        try:
            with node_of(url, host) as store:
                cluster = fields(store.execute("CLUSTER", "INFO"))
                text = store.execute("CLUSTER", "NODES").decode(errors="replace")
                nodes = [node for line in text.splitlines() if (node := read_node(line, host))]
        except (hotcount.AuthError, hotcount.PermissionDeniedError) as error:
            return [Finding("access", "unknown", str(error), IN_REDIS, _doctor_redis.USER)]
        except hotcount.ReplyError as error:
            plain = "redis://, for a single server"
            return [Finding("role", "unsafe", f"{host} is in no cluster: {error}", IN_REDIS, plain)]
        except hotcount.HotcountError as error:
            advice = "name several nodes: one of them has to answer"
            findings.append(Finding("node", "warning", str(error), IN_REDIS, advice))
            continue
        replies, missing = ask_primaries(url, nodes)
        findings += [*missing, *findings_of(cluster, nodes), *moving_slots(replies, nodes)]
        findings += settings_of(replies)
        if is_remote(url) and not url.startswith(("rediss", "valkeys")):
            findings.append(_doctor_redis.NO_TLS)
        return findings
    silent = "no node in the URL answers"
    return [*findings, Finding("reachable", "unknown", silent, IN_REDIS)]


@contextmanager
def node_of(url: str, host: str) -> Iterator[hotcount.Redis]:
    """A store of one node, which follows no MOVED."""
    scheme, _, rest = url.partition("://")
    login = rest.partition("/")[0].partition("?")[0].rpartition("@")[0]
    query = rest.partition("?")[2]
    with hotcount.Redis(
        f"{scheme.partition('+')[0]}://{login + '@' if login else ''}{host}"
        + (f"?{query}" if query else "")
    ) as store:
        yield store


def fields(reply: bytes) -> dict[str, str]:
    lines = reply.decode(errors="replace").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines) if value}


def read_node(line: str, sender: str) -> Node | None:
    """sender: the host that sent the line; its own line may lack its address."""
    parts = line.split()
    if len(parts) < 8:
        return None
    address, _, announced = parts[1].partition(",")
    host, _, port = address.partition("@")[0].rpartition(":")
    # Clients get the hostname if the node announces one.
    host = announced.partition(",")[0] or host or re.sub(r":\d+$", "", sender)
    slots = 0
    for part in parts[8:]:
        if not part.startswith("["):  # [93-<-...] is a moving slot.
            first, _, last = part.partition("-")
            slots += int(last or first) - int(first) + 1
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    flags = frozenset(parts[2].split(","))
    return Node(parts[0], f"{host}:{port}", flags, parts[3], slots)


def read_moving(text: str) -> frozenset[tuple[int, str, str]]:
    """The moving slots in a reply to CLUSTER NODES. The line of the node that replied has [93->-ID]
    for a slot that it gives away, and [93-<-ID] for one that it receives."""
    own = next((line for line in text.splitlines() if "myself" in line), "")
    name = own.partition(" ")[0]
    found = re.findall(r"\[(\d+)-([<>])-(\w+)\]", own)
    return frozenset(
        (int(slot), name, other) if way == ">" else (int(slot), other, name)
        for slot, way, other in found
    )


def ask_primaries(url: str, nodes: list[Node]) -> tuple[list[PrimaryReplies], list[Finding]]:
    replies: list[PrimaryReplies] = []
    missing: list[Finding] = []
    for node in nodes:
        if not node.is_primary or node.slots == 0:
            continue
        try:
            with node_of(url, node.address) as store:
                config = _doctor_redis.config_of(store, (*_doctor_redis.ASKED, *OF_CLUSTER))
                moving = read_moving(store.execute("CLUSTER", "NODES").decode(errors="replace"))
                info = _doctor_redis.info_of(store)
                replies.append(PrimaryReplies(node.address, info, config, moving))
        except hotcount.HotcountError as error:
            found = f"a primary does not answer: {error}"
            advice = "address_map= if clients reach the nodes at other addresses"
            missing.append(Finding("node", "unknown", found, IN_REDIS, advice))
    return replies, missing


OF_CLUSTER = ("cluster-node-timeout", "cluster-require-full-coverage")


def findings_of(cluster: dict[str, str], nodes: list[Node]) -> list[Finding]:
    """The findings about the cluster as a whole."""
    findings = [slots_of(cluster, nodes)]
    if failing := [node.address for node in nodes if node.fails]:
        found = f"marked as failed: {', '.join(failing)}"
        findings.append(Finding("node", "warning", found, IN_REDIS, "start it, or CLUSTER FORGET"))
    replicated = {node.primary for node in nodes if not node.is_primary and not node.fails}
    primaries = [node for node in nodes if node.is_primary and node.slots and not node.fails]
    if alone := [node.address for node in primaries if node.name not in replicated]:
        found = f"no replica: {', '.join(alone)}; if such a primary fails, its keys are refused"
        findings.append(Finding("replicas", "warning", found, IN_REDIS, "CLUSTER REPLICATE"))
    if len(primaries) < 3:
        few = f"{len(primaries)} primaries: a failover takes a majority of them, so none may fail"
        findings.append(Finding("primaries", "warning", few, IN_REDIS, "three, on three machines"))
    return findings


def slots_of(cluster: dict[str, str], nodes: list[Node]) -> Finding:
    served = sum(node.slots for node in nodes if node.is_primary and not node.fails)
    state = cluster.get("cluster_state", "unknown")
    found = f"{served:,} of {SLOTS:,} slots have a primary, state {state}"
    if served == SLOTS and state == "ok":
        return Finding("slots", "ok", found)
    advice = "start what is down; `redis-cli --cluster fix` gives slots without an owner to others"
    return Finding("slots", "unsafe", f"{found}: keys are refused", IN_REDIS, advice)


def moving_slots(replies: list[PrimaryReplies], nodes: list[Node]) -> list[Finding]:
    """Slots that are moving, or that an interrupted reshard has left half moved."""
    address = {node.name: node.address for node in nodes}
    moves = sorted({move for one in replies for move in one.moving})
    if not moves:
        return []
    named = [
        f"{slot} from {address.get(owner, owner)} to {address.get(taker, taker)}"
        for slot, owner, taker in moves[:MOST_NAMED]
    ]
    more = f" and {len(moves) - MOST_NAMED} more" if len(moves) > MOST_NAMED else ""
    found = (
        f"moving slots: {', '.join(named)}{more}; a call with an op_id or an upsert waits "
        "while its keys are on both nodes"
    )
    advice = "if no reshard is running, one was interrupted: `redis-cli --cluster fix HOST:PORT`"
    return [Finding("moving slots", "warning", found, IN_REDIS, advice)]


def settings_of(replies: list[PrimaryReplies]) -> list[Finding]:
    """The settings of the primaries; one line for all if they are equal."""

    def of_each(check: Callable[[PrimaryReplies], list[Finding]]) -> list[Finding]:
        found: dict[Finding, list[str]] = {}
        for one in replies:
            for finding in check(one):
                found.setdefault(finding, []).append(one.address)
        return [
            finding
            if len(addresses) == len(replies)
            else replace(finding, found=f"{', '.join(addresses)}: {finding.found}")
            for finding, addresses in found.items()
        ]

    findings = of_each(lambda one: [_doctor_redis.version(one.info)])
    findings += of_each(node_timeout)
    findings += of_each(lambda one: _doctor_redis.eviction(one.info))
    findings += of_each(lambda one: _doctor_redis.persistence(one.info, one.config))
    # findings_of() reports primaries without a replica.
    findings += of_each(
        lambda one: (
            _doctor_redis.replicas(one.info, one.config)
            if one.info.get("connected_slaves", "0") != "0"
            else []
        )
    )
    findings += of_each(lambda one: _doctor_redis.few_connections(one.info))
    return findings + _doctor_redis.acknowledged() if replies else findings


def node_timeout(one: PrimaryReplies) -> list[Finding]:
    text = one.config.get("cluster-node-timeout")
    if text is None:
        return [Finding("node timeout", "unknown", "this user may not read it", IN_REDIS)]
    seconds = int(text) / 1000
    found = f"cluster-node-timeout {seconds:g} s: a failover takes one to three seconds more"
    if seconds <= SILENCE_LIMIT:
        soon = f"{found}; a store waits {SILENCE_LIMIT:g} s for a silent server"
        return [Finding("node timeout", "warning", soon, IN_REDIS, "2 s or more")]
    if seconds > LATE:
        advice = "5 to 15 s, or a timeout of the store that is longer"
        return [Finding("node timeout", "warning", found, IN_REDIS, advice)]
    return [Finding("node timeout", "ok", found)]
