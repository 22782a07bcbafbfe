"""`hotcount doctor` on Redis and Valkey: INFO, and CONFIG GET where the user may."""

from __future__ import annotations

import re

import hotcount
from hotcount._doctor_finding import IN_REDIS, Finding, numbers

ASKED = ("save", "appendfsync", "min-replicas-to-write", "stop-writes-on-bgsave-error")
# Features with acknowledged writes that are only in Redis, for a while or for good.
KEPT_HERE = ("counters", "retry", "write_behind")
# Features whose data recovers, by itself or by reconcile(), after Redis has lost it.
RECOVERABLE = ("limiters", "sets", "cached", "views")

USER = "a user in the URL, with its password, that may run INFO, and CONFIG GET for all findings"
TLS = "the port must speak TLS; the CA of your own certificates is named by ?ca_file=PATH"
NO_TLS = Finding(
    "tls",
    "warning",
    "no TLS to another machine: the network can read and change the traffic",
    IN_REDIS,
    "use rediss://, or a network of your own",
)


def info_of(store: hotcount.Redis) -> dict[str, str]:
    reply = store.execute("INFO", "everything")
    lines = reply.decode(errors="replace").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines) if value}


def config_of(store: hotcount.Redis, asked: tuple[str, ...] = ASKED) -> dict[str, str]:
    """The settings that the server lets this user read."""
    found = {}
    for name in asked:
        try:
            reply = store.execute("CONFIG", "GET", name)
        except (hotcount.PermissionDeniedError, hotcount.ReplyError):
            continue
        if len(reply) == 2:
            found[name] = reply[1].decode(errors="replace")
    return found


def cluster_of(store: hotcount.Redis, info: dict[str, str]) -> dict[str, str]:
    """The fields of CLUSTER INFO; empty outside a cluster, a "?" if the user may not ask."""
    if info.get("redis_mode", info.get("server_mode")) != "cluster":
        return {}
    try:
        lines = store.execute("CLUSTER", "INFO").decode(errors="replace").splitlines()
    except hotcount.PermissionDeniedError:
        return {"cluster_size": "?"}
    return {name: value for name, _, value in (line.partition(":") for line in lines) if value}


def examine(store: hotcount.Redis) -> list[Finding]:
    info = info_of(store)
    # The role and persistence of a Sentinel say nothing about the servers that it watches.
    if info.get("redis_mode", info.get("server_mode")) == "sentinel":
        return [version(info), sentinel(info)]
    cluster, config = cluster_of(store, info), config_of(store)
    if cluster and (info.get("role") == "slave" or not has_all_slots(cluster)):
        return [version(info), cluster_node(cluster), clients(info)]
    if info.get("role") == "slave":  # Persistence and eviction are its primary's.
        return [version(info), replica(info), clients(info)]
    return [
        version(info),
        role(info, cluster),
        *eviction(info),
        *persistence(info, config),
        *replicas(info, config),
        clients(info),
    ]


def version(info: dict[str, str]) -> Finding:
    valkey = info.get("valkey_version")
    found = f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version', '')}"
    have = numbers(info.get("redis_version", ""))
    if not have:
        return Finding("version", "unknown", "INFO has no version", IN_REDIS)
    if have < (6, 2):
        return Finding("version", "unsafe", found, ("counters",), "PeriodCounter needs 6.2")
    if have < (7, 0):
        old = "before 7.0 a script cannot check an ACL: grant users all commands of a script"
        return Finding("version", "warning", found, IN_REDIS, old)
    return Finding("version", "ok", found)


def role(info: dict[str, str], cluster: dict[str, str]) -> Finding:
    if info.get("loading") == "1":
        return Finding("role", "unknown", "it is loading its data: ask again", IN_REDIS)
    if cluster:
        return Finding("role", "ok", "primary: the node of a Redis Cluster that has all slots")
    return Finding("role", "ok", "primary")


def sentinel(info: dict[str, str]) -> Finding:
    watched = [info[name] for name in sorted(info) if re.fullmatch(r"master\d+", name)]
    primaries = [dict(part.partition("=")[::2] for part in each.split(",")) for each in watched]
    named = [f"{each.get('name')} at {each.get('address')}" for each in primaries]
    found = "a Sentinel, which holds no keys"
    watches = ", ".join(named) or "none at present"
    advice = f"use redis+sentinel://HOST:PORT,HOST:PORT/SERVICE; it watches {watches}"
    return Finding("role", "unsafe", found, IN_REDIS, advice)


def has_all_slots(cluster: dict[str, str]) -> bool:
    """Whether a primary serves every key."""
    of_one = cluster.get("cluster_size") == "1" and cluster.get("cluster_state") == "ok"
    return of_one and cluster.get("cluster_slots_assigned") == "16384"


def cluster_node(cluster: dict[str, str]) -> Finding:
    size, state = cluster.get("cluster_size", "?"), cluster.get("cluster_state", "unknown")
    found = f"a node of a Redis Cluster (primaries: {size}, state {state}): it refuses other slots"
    advice = "write redis+cluster://host:port; redis:// follows no MOVED"
    return Finding("role", "unsafe", found, IN_REDIS, advice)


def replica(info: dict[str, str]) -> Finding:
    found = "a replica, which refuses writes"
    if info.get("slave_read_only") == "0":
        found = "a replica that takes writes, and loses them when it copies its primary again"
    if info.get("master_link_status") == "down":
        found += "; it does not reach its primary"
    primary = f"{info.get('master_host', '')}:{info.get('master_port', '')}"
    return Finding("role", "unsafe", found, IN_REDIS, f"name its primary, {primary}, in the URL")


def eviction(info: dict[str, str]) -> list[Finding]:
    policy, most = info.get("maxmemory_policy", ""), int(info.get("maxmemory", "0"))
    found = f"maxmemory-policy {policy}, {f'maxmemory {most:,} bytes' if most else 'no maxmemory'}"
    all_ok = (
        "a full server refuses writes, which are then not applied"
        if most
        else "it refuses and evicts nothing, until the machine has no memory left"
    )
    findings = []
    if not policy:
        findings.append(Finding("eviction", "unknown", "INFO has no maxmemory_policy", IN_REDIS))
    elif policy.startswith("allkeys-"):
        advice = "maxmemory-policy noeviction; a cache that evicts needs a server of its own"
        refused = ("views",)
        if most > 0:
            lost = ("counters", "retry", "limiters", "cached", "write_behind", "views")
            findings.append(Finding("eviction", "unsafe", found, lost, advice))
            findings.append(
                Finding(
                    "eviction",
                    "warning",
                    "a rebuild that loses a key ends in LeaseLostError, an evicted set is ABSENT",
                    ("sets",),
                )
            )
        else:
            findings.append(
                Finding(
                    "eviction", "unsafe", f"{found}: the constructor refuses it", refused, advice
                )
            )
            others = tuple(each for each in IN_REDIS if each not in refused)
            findings.append(Finding("eviction", "warning", found, others, advice))
    elif policy.startswith("volatile-") and most > 0:
        findings.append(
            Finding(
                "eviction",
                "unsafe",
                f"{found}: an add that is sent again may count twice",
                ("retry",),
                "maxmemory-policy noeviction",
            )
        )
        findings.append(
            Finding(
                "eviction",
                "warning",
                f"{found}: a full server evicts counters with a ttl, results of op_ids, limits "
                "and sets",
                ("counters", "limiters", "sets"),
                "maxmemory-policy noeviction",
            )
        )
    else:
        findings.append(Finding("eviction", "ok", f"{found}: {all_ok}"))
    if int(info.get("evicted_keys", "0")) > 0:
        gone = f"{int(info['evicted_keys']):,} keys were evicted since it started"
        findings.append(Finding("evicted", "warning", gone, IN_REDIS))
    return findings


def persistence(info: dict[str, str], config: dict[str, str]) -> list[Finding]:
    findings = []
    if "err" in (info.get("aof_last_write_status"), info.get("aof_last_bgrewrite_status")):
        failed = "the append-only file cannot be written"
        findings.append(Finding("disk", "unsafe", failed, IN_REDIS, "check its disk"))
    stops = config.get("stop-writes-on-bgsave-error", "yes") == "yes"
    if info.get("rdb_last_bgsave_status") == "err" and stops:
        failed = "the last snapshot failed, so writes are refused (MISCONF)"
        findings.append(Finding("disk", "unsafe", failed, IN_REDIS, "check its disk and memory"))
    advice = "appendonly yes, appendfsync always (everysec: a crash loses a second or two)"
    if info.get("aof_enabled") != "1":
        save = config.get("save")
        if save == "":
            lost = "nothing is kept: a restart loses everything"
        else:
            lost = "appendonly no: a crash loses writes after the last snapshot"
        findings.append(Finding("persistence", "unsafe", lost, KEPT_HERE, advice))
        findings.append(Finding("persistence", "warning", lost, RECOVERABLE, advice))
        return findings
    fsync = config.get("appendfsync")
    found = f"appendonly yes, appendfsync {fsync}"
    if fsync is None:
        hidden = "appendonly yes; this user may not read appendfsync"
        findings.append(Finding("persistence", "unknown", hidden, KEPT_HERE, "grant +config|get"))
    elif fsync == "always":
        findings.append(Finding("persistence", "ok", found))
    elif fsync == "everysec":
        lost = f"{found}: a crash of the machine loses the last second or two"
        findings.append(Finding("persistence", "warning", lost, KEPT_HERE, "appendfsync always"))
    else:
        lost = f"{found}: a crash of the machine loses what the system had not written, about 30 s"
        findings.append(Finding("persistence", "unsafe", lost, KEPT_HERE, advice))
    return findings


# The guarantee of an acknowledgement if a replica may replace the server that gave it.
WORTH = {
    "counters": "an add is on its primary: a failover loses what the replica had not received",
    "retry": "as counters; an add that waits in the queue is in this process alone",
    "limiters": "a hit is on its primary: a failover may lose hits, which are then admitted again",
    "sets": "an upsert is on its primary: after a failover a member may have its former score",
    "cached": "a vote is committed in SQL: a failover loses none, and counts are mended",
    "write_behind": "a vote waits in Redis for SQL: a failover loses what no replica had received",
    "views": "with ack='cache' as counters; with ack='sql' it is committed",
}


def acknowledged() -> list[Finding]:
    """A line for each feature, with the guarantee that contract() gives for one object."""
    return [
        Finding("acknowledged", "ok", f"{feature}: {worth}", (feature,))
        for feature, worth in WORTH.items()
    ]


def few_connections(info: dict[str, str]) -> list[Finding]:
    found = clients(info)
    return [] if found.state == "ok" else [found]


def lag_of(info: dict[str, str]) -> int:
    """Seconds since the last message of the slowest replica."""
    fields = [
        dict(part.partition("=")[::2] for part in value.split(","))
        for name, value in info.items()
        if name.startswith("slave") and name[5:].isdigit()
    ]
    return max((int(each.get("lag", "0")) for each in fields), default=0)


def replicas(info: dict[str, str], config: dict[str, str]) -> list[Finding]:
    connected = int(info.get("connected_slaves", "0"))
    needed = int(config.get("min-replicas-to-write", "0"))
    good = int(info.get("min_slaves_good_slaves", connected))
    if needed > good:
        few = f"min-replicas-to-write {needed}, and {good} are there: writes are refused"
        return [Finding("replicas", "unsafe", few, IN_REDIS, "start the replicas")]
    if connected == 0:
        return [Finding("replicas", "ok", "none, so no failover")]
    findings = []
    if needed == 0:
        findings.append(
            Finding(
                "replicas",
                "warning",
                f"{connected}: a failover loses what they had not received",
                KEPT_HERE,
                "min-replicas-to-write 1 and min-replicas-max-lag bound it; nothing rules it out",
            )
        )
    else:
        findings.append(Finding("replicas", "ok", f"{connected}, min-replicas-to-write {needed}"))
    if lag_of(info) > 10:
        late = f"a replica was last heard of {lag_of(info)} s ago"
        findings.append(Finding("replica lag", "warning", late, KEPT_HERE))
    return findings


def clients(info: dict[str, str]) -> Finding:
    most, now = int(info.get("maxclients", "0")), int(info.get("connected_clients", "0"))
    found = f"{now} of maxclients {most}"
    if most and most - now < 16:
        return Finding("connections", "warning", found, IN_REDIS, "a larger maxclients")
    return Finding("connections", "ok", found)
