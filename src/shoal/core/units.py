"""Parsers for durations, sizes, rates and other values that people write.

Each reader takes what a flag, a variable or a settings file held and raises ValueError or
TypeError for what it does not understand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")
MAX_INTEGER = 2**53  # what every backend and JSON can hold exactly
MAX_SECONDS = 10 * 365 * 86_400.0  # seconds: nobody waits longer


def text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    if any(ord(char) < 32 for char in value):
        raise ValueError(value)
    return value.strip()


def lines(value: object) -> tuple[str, ...]:
    """Several texts: a list, or one text with an item a line (or separated by " | ")."""
    if isinstance(value, str):
        value = value.replace(" | ", "\n").splitlines()
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    return tuple(filter(None, (text(item) for item in value)))


def boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError(value)


def number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(value)
    found = float(value)
    if not math.isfinite(found):
        raise ValueError(value)
    return found


def integer(least: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        found = number(value.replace("_", "") if isinstance(value, str) else value)
        if not least <= found <= MAX_INTEGER or found != int(found):
            raise ValueError(value)
        return int(found)

    return parse


_TIME_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZE_UNITS |= {"k": 10**3, "m": 10**6, "g": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z]*)\s*")


def _parse_quantity(value: object, units: Mapping[str, float]) -> float:
    if not isinstance(value, str):
        return number(value)
    match = _QUANTITY.fullmatch(value)
    if match is None or match[2].lower() not in units:
        raise ValueError(value)
    return number(float(match[1]) * units[match[2].lower()])


def seconds(*, zero: bool = False) -> Callable[[object], float]:
    def parse(value: object) -> float:
        found = _parse_quantity(value, _TIME_UNITS)
        if found < 0 or (found == 0 and not zero) or found > MAX_SECONDS:
            raise ValueError(value)
        return found

    return parse


def size(value: object) -> int:
    found = int(_parse_quantity(value, _SIZE_UNITS))
    if not 0 < found <= MAX_INTEGER:
        raise ValueError(value)
    return found


def rate(value: object) -> float:
    """Requests per second; "30/m" is one every two seconds."""
    per = 1.0
    if isinstance(value, str) and "/" in value:
        value, _, unit = value.partition("/")
        per = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}.get(unit.strip(), math.inf)
    found = number(value) / per
    if found < 1.0 / MAX_SECONDS:  # slower than any delay
        raise ValueError(value)
    return found


def optional(parse: Callable[[object], T]) -> Callable[[object], T | None]:
    return lambda value: None if str(value).strip().lower() in ("none", "no") else parse(value)


def one_of(*words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        word = str(value).strip().lower()
        if word not in words:
            raise ValueError(value)
        return word

    return parse


HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")
_NETWORK = re.compile(r"[0-9a-fA-F:.]+/[0-9]{1,3}")
_HOST = re.compile(r"\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+")


def is_port_or_network(text: str) -> bool:
    """Whether a text can only be a place for --allow-private, and no name of a file."""
    return bool(HOST_AND_PORT.fullmatch(text) or _NETWORK.fullmatch(text))


def _is_place(text: str) -> bool:
    if "/" not in text:
        return bool(HOST_AND_PORT.fullmatch(text) or _HOST.fullmatch(text))
    from ipaddress import ip_network  # late: most values are none

    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def private(value: object) -> str:
    """ "" (none), "1" (all), or places joined by commas: host:port, host for every port, or networks."""
    if isinstance(value, list | tuple):
        value = ",".join(str(item) for item in value)
    try:
        return "1" if boolean(value) else ""
    except ValueError:
        places = str(value).lower().replace(",", " ").split()
        if not places or not all(map(_is_place, places)):
            raise
        return ",".join(places)
