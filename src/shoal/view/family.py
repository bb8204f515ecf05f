"""Family: one metric with its samples, apart from how it is spelled: for Prometheus or for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram", "summary"]
Labels = tuple[tuple[str, str], ...]
PREFIX = "shoal_"


class Sample(msgspec.Struct, frozen=True):
    labels: Labels
    value: float


class Spread(msgspec.Struct, frozen=True):
    """A histogram, or a summary where there are no bounds: how many, how much together."""

    labels: Labels
    bounds: tuple[float, ...]
    counts: tuple[int, ...]  # one more than bounds: of each bucket alone
    sum: float

    @property
    def count(self) -> int:
        return sum(self.counts)


class Family:
    def __init__(self, name: str, kind: Kind | str, help: str) -> None:
        self.name = PREFIX + name
        self.kind = kind
        self.help = help
        self.samples: list[Sample] = []
        self.spreads: list[Spread] = []

    def add(self, value: float, **labels: str) -> Family:
        self.samples.append(Sample(tuple(labels.items()), value))
        return self

    def spread(self, bounds: Sequence[float], counts: Sequence[int], sum: float, **labels: str) -> Family:
        whole = tuple(counts) or (0,) * (len(bounds) + 1)
        self.spreads.append(Spread(tuple(labels.items()), tuple(bounds), whole, sum))
        return self

    def __str__(self) -> str:
        """As Prometheus reads it."""
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        lines += [_line(self.name, sample.labels, sample.value) for sample in self.samples]
        for spread in self.spreads:
            lines += self._spread_lines(spread)
        return "\n".join(lines) + "\n"

    def _spread_lines(self, spread: Spread) -> Iterable[str]:
        below = 0
        for bound, count in zip(spread.bounds, spread.counts, strict=False):
            below += count
            yield _line(f"{self.name}_bucket", (*spread.labels, ("le", _number(bound))), below)
        if self.kind == "histogram":
            yield _line(f"{self.name}_bucket", (*spread.labels, ("le", "+Inf")), spread.count)
        yield _line(f"{self.name}_sum", spread.labels, spread.sum)
        yield _line(f"{self.name}_count", spread.labels, spread.count)


def text(families: Iterable[Family]) -> str:
    return "".join(map(str, families))


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(word)}"' for label, word in labels)
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
