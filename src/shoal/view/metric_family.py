"""A metric family: one metric with its samples, whether for Prometheus or for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

MetricKind = Literal["counter", "gauge", "histogram", "summary"]
Labels = tuple[tuple[str, str], ...]
PREFIX = "shoal_"


class MetricSample(msgspec.Struct, frozen=True):
    labels: Labels
    value: float


class Distribution(msgspec.Struct, frozen=True):
    """A histogram, or a summary where there are no bounds: how many, how much together."""

    labels: Labels
    bounds: tuple[float, ...]
    counts: tuple[int, ...]  # one more than bounds: of each bucket alone
    sum: float

    @property
    def count(self) -> int:
        return sum(self.counts)


class MetricFamily:
    def __init__(self, name: str, kind: MetricKind | str, help: str) -> None:
        self.name = PREFIX + name
        self.kind = kind
        self.help = help
        self.samples: list[MetricSample] = []
        self.distributions: list[Distribution] = []

    def add(self, value: float, **labels: str) -> MetricFamily:
        self.samples.append(MetricSample(tuple(labels.items()), value))
        return self

    def add_distribution(
        self, bounds: Sequence[float], counts: Sequence[int], sum: float, **labels: str
    ) -> MetricFamily:
        whole = tuple(counts) or (0,) * (len(bounds) + 1)
        self.distributions.append(Distribution(tuple(labels.items()), tuple(bounds), whole, sum))
        return self

    def __str__(self) -> str:
        """As Prometheus reads it."""
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        lines += [_line(self.name, sample.labels, sample.value) for sample in self.samples]
        for distribution in self.distributions:
            lines += self._distribution_lines(distribution)
        return "\n".join(lines) + "\n"

    def _distribution_lines(self, distribution: Distribution) -> Iterable[str]:
        below = 0
        for bound, count in zip(distribution.bounds, distribution.counts, strict=False):
            below += count
            yield _line(f"{self.name}_bucket", (*distribution.labels, ("le", _format_number(bound))), below)
        if self.kind == "histogram":
            yield _line(f"{self.name}_bucket", (*distribution.labels, ("le", "+Inf")), distribution.count)
        yield _line(f"{self.name}_sum", distribution.labels, distribution.sum)
        yield _line(f"{self.name}_count", distribution.labels, distribution.count)


def prometheus_text(families: Iterable[MetricFamily]) -> str:
    return "".join(map(str, families))


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{label}="{_escape_label(word)}"' for label, word in labels)
    return f"{name}{{{inside}}} {_format_number(value)}" if inside else f"{name} {_format_number(value)}"


def _escape_label(word: str) -> str:
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
