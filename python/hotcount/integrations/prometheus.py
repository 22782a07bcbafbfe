"""hotcount's objects as metrics of Prometheus (extra ``prometheus``).

docs/how-to/metrics.md has the metrics, and the meaning of a scrape where several processes serve.

Example::

    from prometheus_client import REGISTRY
    from hotcount.integrations.prometheus import Collector

    REGISTRY.register(Collector(store, limiter, votes))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import (
    Metric as Family,
)
from prometheus_client.registry import Collector as _Collector

from hotcount.integrations._metrics import Metric, Observed

__all__ = ["Collector"]

FAMILIES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class Collector(_Collector):
    """Reads stats() of stores, limiters, counters, votes, sets and workers at each scrape.

    It may be registered before tables exist, while a server is away, and stay after close(): a
    scrape never fails, and `hotcount_up` is 0 for an object that could not be read. Votes ask
    their database at each scrape; all other numbers are in this process.

    Args:
        objects: Of hotcount or hotcount.aio. Each is labelled with its kind and a name: its name,
            prefix or table, and for stores and workers the kind.
        timeout: Seconds for a whole scrape, at most 60. Objects whose turn comes later are not up.
        named: More objects, by the name that their label shall have.

    Raises:
        ConfigError: Two objects have one kind and name, or timeout has a bad value.
        TypeError: An object is none of hotcount's.

    >>> import hotcount
    >>> from hotcount.integrations.prometheus import Collector
    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> likes = hotcount.Counter("memory://")
    >>> registry.register(Collector(likes=likes))
    >>> labels = {"kind": "counter", "name": "likes", "outcome": "ok"}
    >>> likes.add("photo:42"), registry.get_sample_value("hotcount_calls_total", labels)
    (1, 1.0)
    """

    def __init__(self, *objects: Any, timeout: float = 1.0, **named: Any) -> None:
        self._observed = Observed(objects, named, timeout)

    def describe(self) -> Iterable[Family]:
        """The metrics without samples, so that registering reads nothing."""
        return [_family(metric) for metric in self._observed.metrics()]

    def collect(self) -> Iterator[Family]:
        """The metrics, for the registry."""
        families: dict[str, Any] = {}
        for sample in self._observed.samples():
            metric = sample.metric
            family = families.get(metric.name) or families.setdefault(metric.name, _family(metric))
            if metric.kind == "histogram":
                buckets, total = sample.value
                family.add_metric(sample.labels, buckets=list(buckets.items()), sum_value=total)
            else:
                family.add_metric(sample.labels, sample.value)
        yield from families.values()


def _family(metric: Metric) -> Any:
    return FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)
