"""`hotcount doctor` on redis+sentinel://: the replies of each Sentinel about the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hotcount
from hotcount._doctor_finding import IN_REDIS, Finding, State, hosts_of

PORT = 26379
FEWEST = 3
NUMBERS = ("port", "num-other-sentinels", "num-slaves", "down-after-milliseconds")


@dataclass(frozen=True)
class Said:
    """The reply of one Sentinel to SENTINEL MASTER for the service."""

    sentinel: str
    fields: dict[str, str]
    error: str = ""


def is_sentinel(url: str) -> bool:
    return url.partition("://")[0].lower().endswith("+sentinel")


def ask(scheme: str, host: str, query: str, service: str) -> Said:
    address = host if host.rpartition(":")[2].isdigit() and host[-1] != "]" else f"{host}:{PORT}"
    options = "&".join(each for each in query.split("&") if not each.startswith("db="))
    url = f"{scheme.partition('+')[0]}://{address}" + (f"?{options}" if options else "")
    try:
        with hotcount.Redis(url) as sentinel:
            reply: Any = sentinel.execute("SENTINEL", "MASTER", service)
    except hotcount.ConfigError:
        raise
    except hotcount.HotcountError as error:
        return Said(address, {}, str(error))
    if not isinstance(reply, list) or not all(isinstance(each, bytes) for each in reply):
        return Said(address, {}, f"{address} answers without sense")
    texts = [each.decode(errors="replace") for each in reply]
    fields = dict(zip(texts[::2], texts[1::2], strict=False))
    if "ip" not in fields or not all(fields.get(each, "").isdecimal() for each in NUMBERS):
        return Said(address, {}, f"{address} answers without sense")
    return Said(address, fields)


def examine(url: str) -> list[Finding]:
    scheme, _, rest = url.partition("://")
    before, _, query = rest.partition("?")
    service = before.rpartition("@")[2].partition("/")[2].partition("/")[0]
    said = [ask(scheme, host, query, service) for host in hosts_of(url)]
    return findings_of(said)


def findings_of(said: list[Said]) -> list[Finding]:
    findings = []
    answers = [each for each in said if each.fields]
    for each in said:
        if each.error:
            state: State = "warning" if len(answers) > len(said) // 2 else "unknown"
            advice = "Sentinels with a login of their own: sentinel_credentials=, not asked here"
            findings.append(Finding("sentinel", state, each.error, IN_REDIS, advice))
    if not answers:
        return findings
    known = {1 + int(each.fields["num-other-sentinels"]) for each in answers}
    primaries = {f"{each.fields['ip']}:{each.fields['port']}" for each in answers}
    first = answers[0].fields
    found = (
        f"{len(answers)} of {len(said)} answer, quorum {first.get('quorum')}, a failover begins "
        f"after {int(first['down-after-milliseconds']) / 1000:g} s"
    )
    if len(primaries) > 1:
        disagree = (
            f"they name {', '.join(sorted(primaries))}: a failover is under way, or ask again"
        )
        findings.append(Finding("sentinels", "unknown", disagree, IN_REDIS))
    if known != {len(said)}:
        told = " or ".join(str(each) for each in sorted(known))
        few = f"the URL names {len(said)} and they know of {told}"
        advice = "name all of them: a majority of those in the URL is asked"
        findings.append(Finding("sentinels", "warning", few, IN_REDIS, advice))
    elif len(said) < FEWEST:
        few = f"{len(said)}: if one ends, nobody is elected to replace the primary"
        findings.append(Finding("sentinels", "warning", few, IN_REDIS, "three, on three machines"))
    else:
        findings.append(Finding("sentinels", "ok", found))
    if all(each.fields.get("num-slaves") == "0" for each in answers):
        findings.append(
            Finding("failover", "warning", "no replica: nothing can replace it", IN_REDIS)
        )
    return findings
