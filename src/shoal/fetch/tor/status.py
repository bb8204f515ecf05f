"""What a tor says of itself: how far it has bootstrapped, and its circuits."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_WORDS = 200  # letters
_pairs = re.compile(r'([A-Z_]+)=("(?:[^"\\]|\\.)*"|\S*)').findall


@dataclass(frozen=True, slots=True)
class BootstrapPhase:
    progress: int = 0  # per cent
    summary: str = "Starting"
    warning: str = ""

    @property
    def is_done(self) -> bool:
        return self.progress >= 100

    def __str__(self) -> str:
        return f"{self.progress} % ({self.summary})" + (f": {self.warning}" if self.warning else "")


@dataclass(frozen=True, slots=True)
class Circuit:
    number: str
    state: str  # BUILT, or on the way to it
    relays: tuple[str, ...]  # their nicknames, the exit last
    user: str  # whose streams it is for


def read_bootstrap_phase(text: str) -> BootstrapPhase:
    """Of `NOTICE BOOTSTRAP PROGRESS=45 TAG=… SUMMARY="Asking for relay descriptors"`."""
    given = _values(text)
    progress = given.get("PROGRESS", "")
    return BootstrapPhase(
        min(int(progress), 100) if progress.isdecimal() and len(progress) < 4 else 0,
        given.get("SUMMARY", "")[:MAX_WORDS] or "no phase",
        given.get("WARNING", "")[:MAX_WORDS],
    )


def read_circuits(text: str) -> list[Circuit]:
    """Of the lines of circuit-status; those that carry nobody's streams are left out."""
    found = []
    for line in text.splitlines():
        number, _, rest = line.partition(" ")
        state, _, rest = rest.partition(" ")
        path = "" if "=" in rest.partition(" ")[0] else rest.partition(" ")[0]
        given = _values(rest)
        circuit = Circuit(
            number,
            state,
            tuple(relay.rpartition("~")[2] for relay in path.split(",") if relay),
            given.get("SOCKS_USERNAME", ""),
        )
        if circuit.user:
            found.append(circuit)
    return found


def read_listener(text: str) -> int | None:
    """The port of `"127.0.0.1:9050"`, the first of several; None where there is none."""
    found = re.match(r'"127\.0\.0\.1:(\d{1,5})"', text)
    return int(found[1]) if found else None


def _values(text: str) -> dict[str, str]:
    return {name: _unquoted(value) for name, value in _pairs(text)}


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
