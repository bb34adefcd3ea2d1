"""Metrics in the text format that Prometheus reads (version 0.0.4:
https://prometheus.io/docs/instrumenting/exposition_formats/)."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SERIES_MAX = 10_000
"""The most series of one metric that are shown or counted; further ones are left out, since names
chosen by others could make any number."""

_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Labels = Mapping[str, str]
_Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric, with its present values."""

    name: str
    """With its unit, and with ``_total`` if it only rises."""
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Iterable[tuple[str, Labels, float]] = field(default_factory=list)
    """(What is put after the name, labels, value)."""


def gauge(name: str, text: str, values: Iterable[tuple[Labels, float]]) -> Metric:
    """A metric that rises and falls."""
    return Metric(name=name, kind="gauge", help=text, samples=[("", *value) for value in values])


def counter(name: str, text: str, values: Iterable[tuple[Labels, float]]) -> Metric:
    """A metric that only rises, until its counter is restarted."""
    return Metric(name=name, kind="counter", help=text, samples=[("", *value) for value in values])


class Histogram:
    """Counts observations by their labels, and how many were at most as large as some bounds."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        """``bounds`` rise."""
        self._name = name
        self._text = text
        self._bounds = tuple(bounds)
        self._counts: dict[_Key, list[int]] = {}
        self._sums: dict[_Key, float] = {}

    def observe(self, value: float, **labels: str) -> None:
        key = tuple(labels.items())
        if key not in self._counts:
            if len(self._counts) >= SERIES_MAX:
                return
            self._counts[key] = [0] * (len(self._bounds) + 1)
            self._sums[key] = 0.0
        self._counts[key][bisect_left(self._bounds, value)] += 1
        self._sums[key] += value

    def metric(self) -> Metric:
        return Metric(
            name=self._name, kind="histogram", help=self._text, samples=list(self._samples())
        )

    def _samples(self) -> Iterator[tuple[str, Labels, float]]:
        for key, counts in self._counts.items():
            labels, seen = dict(key), 0
            for bound, count in zip((*self._bounds, math.inf), counts, strict=True):
                seen += count
                yield "_bucket", {**labels, "le": _number(bound)}, seen
            yield "_sum", labels, self._sums[key]
            yield "_count", labels, seen


def render(metrics: Iterable[Metric]) -> str:
    """The text of metrics. Raises ValueError for a name that cannot be one."""
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    if not _NAME.fullmatch(metric.name):
        raise ValueError(f"{metric.name!r} is no name of a metric")
    text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {metric.name} {text}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for number, (suffix, labels, value) in enumerate(metric.samples):
        if number >= SERIES_MAX and metric.kind != "histogram":
            return
        yield f"{metric.name}{suffix}{_braced(labels)} {_number(value)}"


def _braced(labels: Labels) -> str:
    for name in labels:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a label")
    # Half of a surrogate pair could not be sent.
    pairs = [f'{name}="{_sendable(value).translate(_ESCAPES)}"' for name, value in labels.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
