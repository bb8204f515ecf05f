"""Budget text: how much a run may use, as people write it: "proxy=2GB,browser=3h". Pure, and light: --help needs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shoal.core import units
from shoal.errors import UsageError

KINDS = ("bytes", "proxy", "cpu", "browser")
MICROS = 1_000_000
ACCEPTS = "one or more of proxy=2GB, bytes=10GB, cpu=5h and browser=3h, joined by commas"
_SIZES = ("bytes", "proxy")


def parse_budget(value: object) -> str:
    """A budget as it is written in settings: "proxy=2GB,browser=3h", or a table of the same; "" or none is no limit."""
    if isinstance(value, Mapping):
        value = ",".join(f"{name}={amount}" for name, amount in value.items())
    if not isinstance(value, str):
        raise TypeError(value)
    text = value.strip().lower()
    if text in ("", "none"):
        return ""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    _limits(parts)
    return ",".join(parts)


def budget_amounts(text: str) -> dict[str, int]:
    """By kind, of a text that `parse_budget` has accepted: bytes, or microseconds."""
    return _limits(text.split(",")) if text else {}


def _limits(parts: Collection[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        kind, equals, amount = (word.strip() for word in part.partition("="))
        if kind not in KINDS:
            raise UsageError(f"{kind[:40]!r} is nothing that a budget limits", hint=f"give {ACCEPTS}")
        if not equals or kind in found:
            raise UsageError(f"{kind} has {'two amounts' if equals else 'no amount'}", hint=f"give {ACCEPTS}")
        try:
            found[kind] = units.size(amount) if kind in _SIZES else max(1, round(units.seconds()(amount) * MICROS))
        except ValueError:
            unit = "a size such as 500MB" if kind in _SIZES else "a time such as 90m"
            raise UsageError(f"{kind}={amount[:40]}: the amount is not understood", hint=f"give {unit}") from None
    return found
