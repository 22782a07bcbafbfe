"""Keys, limits and headers of a request, which the integrations of web frameworks share."""

from __future__ import annotations

import functools
import hashlib
import inspect
import ipaddress
import math
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Literal, Union, cast

from hotcount import aio
from hotcount._types import LimiterKey, Seconds
from hotcount.aio import joint_hits as joint_soon
from hotcount.errors import ConfigError, HotcountError
from hotcount.joint_hits import Hit, Taken, face, give_back, group_hits, take_now
from hotcount.limiter import Algorithm, Limiter, LimiterBase, OnError
from hotcount.rate import Rate
from hotcount.results import Decision

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
Headers = Literal["both", "ietf", "legacy", "none"]

# Characters of a part of a key; a store takes 1,000 bytes for all of them.
LONGEST_PART = 100


class Addresses:
    """Finds the address of a client: the peer's, or the one that trusted proxies forward.

    Args:
        trusted_proxies: Addresses and networks ("10.0.0.0/8") of the proxies in front of the
            server, and "unix" for peers without an address. X-Forwarded-For is read from its end,
            and only as far as trusted proxies have written it. A proxy that is not listed counts
            as the client of everybody behind it. A listed client can forge addresses.
        ipv6_prefix: How many bits of an IPv6 address count, 1 to 128. 64 is what one subscriber
            has; with 128 a client escapes its limit by the next of its own addresses.
    """

    def __init__(self, trusted_proxies: Iterable[str] = (), ipv6_prefix: int = 64) -> None:
        if isinstance(trusted_proxies, str):
            raise TypeError("trusted_proxies must be several networks, not one str: ['10.0.0.0/8']")
        if not 1 <= ipv6_prefix <= 128:
            raise ConfigError(f"ipv6_prefix is {ipv6_prefix}; it takes 1 to 128")
        names = list(trusted_proxies)
        self._trusts_unix = "unix" in names
        self._trusted: list[Network] = []
        for name in names:
            if name == "unix":
                continue
            try:
                self._trusted.append(_network(name))
            except ValueError as error:
                raise ConfigError(
                    f"trusted_proxies has {name!r}: it takes addresses, networks and 'unix'"
                ) from error
        self._ipv6_prefix = ipv6_prefix
        # Parsing the address, above all of IPv6, was most of a limit's processor time.
        self._read_peer = functools.lru_cache(maxsize=4096)(self._parse_peer)

    def find(self, peer: str | None, forwarded: str) -> str:
        """The address, as a key has it. forwarded: all of X-Forwarded-For, joined by commas."""
        if peer:
            key, is_trusted = self._read_peer(peer)
            if not is_trusted:
                return key
        elif self._trusts_unix:
            key = "unix"
        else:
            raise ConfigError(
                "the server knows no address of its peer, as on a Unix socket: add 'unix' to "
                "trusted_proxies if a proxy is in front of it, or give another key"
            )
        address = None
        for hop in reversed(forwarded.split(",")):
            found = _parse(hop)
            if found is None:
                break
            address = found
            if not self._is_trusted(address):
                break
        return key if address is None else self._key(address)

    def _parse_peer(self, peer: str) -> tuple[str, bool]:
        """The key of a peer, and whether it is a trusted proxy."""
        address = _parse(peer)
        if address is None:
            return peer, False  # No address, as of the test clients of frameworks.
        return self._key(address), self._is_trusted(address)

    def _is_trusted(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        return any(address in network for network in self._trusted)

    def _key(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
        if address.version == 4 or self._ipv6_prefix == 128:
            return str(address)
        return str(ipaddress.ip_network((address, self._ipv6_prefix), strict=False))


MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")


def _network(name: str) -> Network:
    """A network; an IPv6 network of mapped IPv4 addresses becomes the IPv4 network."""
    network = ipaddress.ip_network(name, strict=False)
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(MAPPED):
        mapped = network.network_address.ipv4_mapped
        return ipaddress.IPv4Network((int(mapped or 0), network.prefixlen - 96))
    return network


def _parse(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address with or without a port; None for other texts."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def limiter_of(
    store: Any, limits: Any, name: str, algorithm: Algorithm, on_error: OnError
) -> tuple[LimiterBase, Any]:
    """A limiter over the store, and the rate of its hits. `store` may be a limiter already.

    limits: a rate, several, or a function of the request that returns them.
    """
    if isinstance(store, LimiterBase):
        return store, limits if callable(limits) or limits is None else to_rates(limits)
    options: dict[str, Any] = {"name": name, "algorithm": algorithm, "on_error": on_error}
    if callable(limits):
        return Limiter(store, "1/second", **options), limits  # Each hit brings its own.
    if not limits:
        raise ConfigError("there are no limits: give rates such as '100/minute'")
    return Limiter(store, to_rates(limits), **options), None


def to_rates(limits: Any) -> Any:
    """One or several rates as a limiter takes them; of several a hit takes all or none."""
    if isinstance(limits, (str, Rate)):
        return limits
    rates = [
        rate
        for one in limits
        for rate in ((one,) if isinstance(one, Rate) else Limiter("memory://", one).rates)
    ]
    return rates[0] if len(rates) == 1 else tuple(rates)


class Rule:
    """A limit of requests: the key, rate and cost of a request, and the exempt requests.

    key, rate, cost and exempt are functions of the framework's request, or values.
    """

    __slots__ = ("cost", "exempt", "key", "limiter", "methods", "rate", "scope")

    def __init__(
        self,
        limiter: LimiterBase,
        key: Callable[..., Any],
        *,
        rate: Any = None,
        cost: Any = 1,
        methods: Collection[str] | None = None,
        exempt: Callable[..., Any] | None = None,
        scope: tuple[str, ...] = (),
    ) -> None:
        if not isinstance(limiter, LimiterBase):
            raise TypeError(f"limiter must be a Limiter, not {type(limiter).__name__}")
        if not callable(key):
            raise TypeError(f"key_func must be a function or one of the names, not {key!r}")
        if isinstance(methods, str):
            raise TypeError(f"methods must be several names, not one str: [{methods!r}]")
        self.limiter, self.key, self.rate, self.cost = limiter, key, rate, cost
        self.methods = None if methods is None else frozenset(name.upper() for name in methods)
        self.exempt, self.scope = exempt, scope

    def skips(self, method: str | None) -> bool:
        """Whether the rule does not apply to this method."""
        return self.methods is not None and (method or "").upper() not in self.methods

    def to_hit(self, key: Any, cost: Any, rate: Any) -> Hit[LimiterBase] | None:
        """The hit of a request, from the results of the rule's functions; None: it costs 0."""
        if cost == 0:
            return None
        if not isinstance(key, (str, bytes, tuple)):
            name = getattr(self.key, "__qualname__", repr(self.key))
            raise ConfigError(
                f"the key function {name} returned {key!r}: a key is str, bytes or a tuple of "
                "them. exempt_when= (of the ASGI middleware exempt=, in Django a rate of None) "
                "lets requests pass"
            )
        if not self.scope and isinstance(key, (str, bytes)) and key:
            return self.limiter, _fit(key), cost, rate
        parts = (*self.scope, *(key if isinstance(key, tuple) else (key,)))
        return self.limiter, tuple(_fit(part) for part in parts), cost, rate

    def hit_now(self, *request: Any) -> Hit[LimiterBase] | None:
        """The hit of a request; None: it is exempt. The functions are plain ones."""
        if self.exempt is not None and self.exempt(*request):
            return None
        chosen = (
            one(*request) if callable(one) else one for one in (self.key, self.cost, self.rate)
        )
        return self.to_hit(*chosen)

    async def hit_soon(self, *request: Any) -> Hit[LimiterBase] | None:
        """hit_now() for functions that may be async."""
        if self.exempt is not None and await _settled(self.exempt(*request)):
            return None
        chosen = [
            await _settled(one(*request)) if callable(one) else one
            for one in (self.key, self.cost, self.rate)
        ]
        return self.to_hit(*chosen)


def _fit(part: Any) -> Any:
    """A part of a key; for a long part, such as a client may send, its hash."""
    if not isinstance(part, (str, bytes)) or len(part) <= LONGEST_PART:
        return part
    data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class RequestLimits:
    """The limits that one request has met so far.

    A refused request spends nothing: give_back_now() refunds its hits on other limits. A request
    that is answered in spite of a refusal keeps them spent.
    """

    __slots__ = ("_taken", "decision")

    def __init__(self) -> None:
        self.decision: Decision | None = None
        """The decision that the response reports: a refusal, else the one with the least left."""
        self._taken: list[Taken[LimiterBase]] = []

    def take_now(self, hits: list[Hit[LimiterBase]], timeout: Seconds | None = None) -> Decision:
        """Takes the hits, all or none."""
        if len(hits) == 1:
            limiter, key, cost, rate = hits[0]
            decision = face(Limiter, limiter).hit(key, cost, rate=rate, timeout=timeout)
            taken = [(hits[0], decision.reason)]
        else:
            decision, taken = take_now(group_hits(hits, LimiterBase, None), timeout)
        self._hear(decision, taken)
        return decision

    async def take_soon(
        self, hits: list[Hit[LimiterBase]], timeout: Seconds | None = None
    ) -> Decision:
        """The same without blocking the loop."""
        if len(hits) == 1:
            limiter, key, cost, rate = hits[0]
            decision = await face(aio.Limiter, limiter).hit(key, cost, rate=rate, timeout=timeout)
            taken = [(hits[0], decision.reason)]
        else:
            groups = group_hits(hits, LimiterBase, None)
            decision, taken = await joint_soon.take_soon(groups, timeout)
        self._hear(decision, taken)
        return decision

    def hear(self, decision: Decision) -> None:
        """Reports a decision that a decorator has made."""
        told = self.decision
        if told is None or not decision or (told.allowed and decision.remaining < told.remaining):
            self.decision = decision

    def is_refused(self, status: int) -> bool:
        """Whether a response is the refusal, and not an answer in spite of it."""
        return status == 429 and self.decision is not None and not self.decision

    def give_back_now(self, timeout: Seconds | None = None) -> None:
        """Refunds the hits that a refused request took of other limits.

        If the store fails, they stay taken: the client gets the refusal, and not that error.
        """
        with suppress(HotcountError):
            give_back(self._give_up(), timeout)

    async def give_back_soon(self, timeout: Seconds | None = None) -> None:
        """The same without blocking the loop."""
        with suppress(HotcountError):
            await joint_soon.give_back(self._give_up(), timeout)

    def _hear(self, decision: Decision, taken: list[Taken[LimiterBase]]) -> None:
        self.hear(decision)
        if decision:
            # A hit with 'shadow' may have taken nothing, and a hit with 'open' took nothing.
            self._taken += [one for one in taken if one[1] not in ("open", "shadow")]

    def _give_up(self) -> list[Taken[LimiterBase]]:
        taken, self._taken = self._taken, []
        return taken


def to_headers(decision: Decision | None, style: Headers, status: int) -> dict[str, str]:
    """The headers of a response; empty if the request has met no limit."""
    if decision is None or style == "none":
        return {}
    headers = decision.headers("legacy" if style == "legacy" else "ietf")
    if style == "both":
        headers |= decision.headers("legacy")
    if status < 400:  # A view has answered although a limit refuses.
        headers.pop("Retry-After", None)
    return headers


def check_style(style: str) -> Headers:
    """ConfigError for an unknown style of headers."""
    if style not in ("both", "ietf", "legacy", "none"):
        raise ConfigError(f"headers is {style!r}; it takes 'both', 'ietf', 'legacy' or 'none'")
    return cast(Headers, style)


def to_message(decision: Decision) -> str:
    """The text for a refused client. It names no host and no key."""
    if decision.reason == "blocked":
        limit = "Requests are blocked"
        if decision.retry_after is None:
            return limit
    else:
        quota = decision.quota or decision.limit
        limit = f"Rate limit exceeded: {Rate(quota, decision.period, quota)}"
    if decision.retry_after is None:
        return f"{limit}. This request costs more than the limit"
    return f"{limit}. Retry after {math.ceil(decision.retry_after)} seconds"


def named_key(
    option: str, key: Any, names: dict[str, Callable[..., Any]]
) -> Callable[..., LimiterKey]:
    """The key function itself, or the one of a name: 'ip', 'header:x-api-key'."""
    if not isinstance(key, str):
        return cast(Callable[..., LimiterKey], key)
    kind, colon, rest = key.partition(":")
    make = names.get(kind + colon)
    if make is None or bool(colon) != bool(rest):
        known = ", ".join(repr(name + ("NAME" if name.endswith(":") else "")) for name in names)
        raise ConfigError(f"{option} is {key!r}; it takes {known}, or a function")
    return make(rest) if colon else make
