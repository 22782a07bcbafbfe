"""Prometheus metrics of hotcount's objects (extra ``prometheus``).

docs/how-to/metrics.md lists the metrics and explains scrapes of several processes.

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

    A scrape never fails: before tables exist, while a server is away and after close(),
    `hotcount_up` is 0 for the objects that cannot be read. Votes query their database at each
    scrape; all other numbers are in this process.

    Args:
        objects: Objects of hotcount or hotcount.aio. Their labels are kind and name: the object's
            name, prefix or table; for stores and workers the kind.
        timeout: Seconds for a whole scrape, at most 60. Objects not read by then are not up.
        named: More objects, by the name for their label.

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
