"""TorOptions: how a tor is started, and when its circuits are replaced."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TorOptions:
    program: str = ""  # a name or a path; "": what this machine has
    torrc: tuple[str, ...] = ()  # more lines of its configuration, from files of this machine alone
    bootstrap_timeout: float = 120.0  # seconds until it must be ready
    rotate: float = 600.0  # seconds after which whoever has a circuit gets a new one; 0: never
    new_circuit_after: int = 3  # refusals of a site in a row, after which whoever was refused gets a new one; 0: never
