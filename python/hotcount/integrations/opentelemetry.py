"""hotcount's objects as observable instruments of OpenTelemetry's metrics API::

    from hotcount.integrations.opentelemetry import instrument

    instrument(store, limiter, votes)

Needs opentelemetry-api, and a MeterProvider of an SDK for anything to be read (extra
``opentelemetry``). The metrics are those of docs/how-to/metrics.md, without the suffix _total.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter

import hotcount
from hotcount.integrations._metrics import Metric, Observed, Sample

__all__ = ["instrument"]

# An export reads the instruments one by one; reads within KEPT seconds share one stats() call.
KEPT = 0.5


def instrument(
    *objects: Any, meter: Meter | None = None, timeout: float = 1.0, **named: Any
) -> None:
    """Makes an instrument for each metric of these objects.

    A latency histogram is three counters: its buckets with the attribute le, its sum and its count,
    because the API has no observable histogram. Otherwise as
    hotcount.integrations.prometheus.Collector.

    Args:
        objects: Of hotcount or hotcount.aio.
        meter: Where instruments are made; None is `get_meter("hotcount")`.
        timeout: Seconds for reading all objects, at most 60.
        named: More objects, by the name that their attribute shall have.

    Raises:
        ConfigError: Two objects have one kind and name, or timeout has a bad value.
        TypeError: An object is none of hotcount's.
    """
    observed = Observed(objects, named, timeout)
    if meter is None:
        meter = get_meter("hotcount", hotcount.__version__)
    shared = _Shared(observed)
    for metric in observed.metrics():
        unit = "s" if "seconds" in metric.name else "By" if "bytes" in metric.name else "1"
        if metric.kind == "gauge":
            meter.create_observable_gauge(
                metric.name, [_callback(shared, metric, _plain)], unit, metric.help
            )
            continue
        parts = {"": _plain} if metric.kind == "counter" else HISTOGRAM
        for suffix, observations in parts.items():
            meter.create_observable_counter(
                metric.name + suffix,
                [_callback(shared, metric, observations)],
                unit if suffix in ("", "_sum") else "1",
                metric.help,
            )


class _Shared:
    """Samples, read again when they are older than KEPT."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._lock = threading.Lock()
        self._samples: dict[Metric, list[Sample]] = {}
        self._read_at = float("-inf")

    def of(self, metric: Metric) -> list[Sample]:
        with self._lock:
            if time.monotonic() - self._read_at > KEPT:
                self._samples = {}
                for sample in self._observed.samples():
                    self._samples.setdefault(sample.metric, []).append(sample)
                self._read_at = time.monotonic()
            return self._samples.get(metric, [])


def _attributes(sample: Sample) -> dict[str, str]:
    return dict(zip(sample.metric.labels, sample.labels))


def _plain(sample: Sample) -> Iterable[Observation]:
    yield Observation(sample.value, _attributes(sample))


def _buckets(sample: Sample) -> Iterable[Observation]:
    for bound, replies in sample.value[0].items():
        yield Observation(replies, _attributes(sample) | {"le": bound})


def _sum(sample: Sample) -> Iterable[Observation]:
    yield Observation(sample.value[1], _attributes(sample))


def _count(sample: Sample) -> Iterable[Observation]:
    yield Observation(sample.value[0]["+Inf"], _attributes(sample))


HISTOGRAM = {"_bucket": _buckets, "_sum": _sum, "_count": _count}


def _callback(
    shared: _Shared, metric: Metric, observations: Callable[[Sample], Iterable[Observation]]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(_: CallbackOptions) -> Iterable[Observation]:
        return [each for sample in shared.of(metric) for each in observations(sample)]

    return read
