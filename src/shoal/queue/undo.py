"""Undo of a cancel: why it is refused, in words."""

from __future__ import annotations

from shoal.errors import UsageError


def not_cancelled(name: str, state: str) -> UsageError:
    return UsageError(
        f"run {name} is {state}: there is no cancel to undo", hint="`shoal runs` lists what can be undone"
    )


def too_late(name: str) -> UsageError:
    return UsageError(
        f"the cancel of run {name} cannot be undone: its tasks were kept for an hour and are gone",
        hint="start it anew: the same command with --fresh",
    )


def replaced(name: str, other: str) -> UsageError:
    return UsageError(
        f"the cancel of run {name} cannot be undone: run {other} goes on in its place",
        hint=f"cancel that one first: shoal cancel {other}",
    )
