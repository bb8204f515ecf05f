"""One planted change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    wrong: str  # what the change makes wrong, in words
    file: str  # below src/shoal
    old: str  # text that stands there once
    new: str
    tests: str  # below tests: files that take seconds, with spaces in between
