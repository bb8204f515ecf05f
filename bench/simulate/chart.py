"""Chart: lines in a small SVG that is readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 800, 360, 70, 230, 34, 46
MIN_PIXELS = 2.0  # between two points of a line that are both drawn
COLOURS = ("#2a7de1", "#d9541e", "#2e9e5b", "#9b51c9", "#888888", "#b8860b")
Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    title: str
    is_log: bool = False

    def scale(self, low: float, high: float, start: float, end: float) -> Callable[[float], float]:
        if self.is_log:
            low, high = math.log10(low), math.log10(high)
        width = (high - low) or 1.0

        def place(value: float) -> float:
            value = math.log10(max(value, 1e-12)) if self.is_log else value
            return start + (value - low) / width * (end - start)

        return place

    def ticks(self, low: float, high: float) -> list[float]:
        if self.is_log:
            first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
            return [10.0**power for power in range(first, last + 1)]
        step = 10 ** math.floor(math.log10((high - low) or 1))
        step = next(step * part for part in (0.1, 0.2, 0.5, 1, 2) if (high - low) / (step * part) <= 7)
        return [step * number for number in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def label(value: float) -> str:
    for divisor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= divisor:
            return f"{value / divisor:g} {unit}"
    return f"{value:g}"


def chart(title: str, x: Axis, y: Axis, lines: Sequence[tuple[str, Sequence[Point]]]) -> str:
    """One line per name; log axes leave out what is not above 0."""
    kept = [
        (name, [p for p in points if (p[0] > 0 or not x.is_log) and (p[1] > 0 or not y.is_log)])
        for name, points in lines
    ]
    xs, ys = [p[0] for _, points in kept for p in points], [p[1] for _, points in kept for p in points]
    x_low, x_high, y_high = min(xs), max(xs), max(ys)
    y_low = min(ys) if y.is_log else 0.0
    if y.is_log:
        y_low, y_high = 10.0 ** math.floor(math.log10(y_low)), 10.0 ** math.ceil(math.log10(y_high))
    across = x.scale(x_low, x_high, LEFT, WIDTH - RIGHT)
    up = y.scale(y_low, y_high, HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" fill="#808080" role="img"><title>{escape(title)}</title>',
        f'<text x="{LEFT}" y="18" font-size="14">{escape(title)}</text>',
    ]
    for tick in x.ticks(x_low, x_high):
        at = f"{across(tick):.1f}"
        parts.append(f'<path d="M{at} {TOP}V{HEIGHT - BOTTOM}" stroke="#8884"/>')
        parts.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label(tick)}</text>')
    for tick in y.ticks(y_low, y_high):
        at = f"{up(tick):.1f}"
        parts.append(f'<path d="M{LEFT} {at}H{WIDTH - RIGHT}" stroke="#8884"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{float(at) + 4:.1f}" text-anchor="end">{label(tick)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x.title)}</text>')
    turned = f'x="14" y="{HEIGHT / 2}" transform="rotate(-90 14 {HEIGHT / 2})"'
    parts.append(f'<text {turned} text-anchor="middle">{escape(y.title)}</text>')
    for number, (name, points) in enumerate(kept):
        colour = COLOURS[number % len(COLOURS)]
        path = "L".join(f"{px:.1f} {py:.1f}" for px, py in thinned([(across(px), up(py)) for px, py in points]))
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = TOP + 16 + 20 * number
        parts.append(f'<path d="M{WIDTH - RIGHT + 12} {at - 4}h18" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 36}" y="{at}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def thinned(points: Sequence[Point]) -> list[Point]:
    """Few enough for a small file: points on the page that lie together are one, and jumps stay jumps."""
    kept: list[Point] = []
    before = None
    for point in points:
        if not kept or math.dist(kept[-1], point) >= MIN_PIXELS:
            if before is not None and before != kept[-1] and math.dist(before, point) >= MIN_PIXELS:
                kept.append(before)
            kept.append(point)
        before = point
    return kept if not points or kept[-1] == points[-1] else [*kept, points[-1]]
