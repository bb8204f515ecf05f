"""Another page limit for a run: why it is refused, in words."""

from __future__ import annotations

from shoal.core.run import Run
from shoal.errors import UsageError


def limit_refused(why: str, run: Run, about: str | int = "") -> UsageError:
    """why: what a backend answers."""
    if why == "reached":
        ended = f"1 page of run {run.name} has" if about == 1 else f"{about:,} pages of run {run.name} have"
        return UsageError(
            f"{ended} ended already: such a limit would end it at once", hint="give a higher limit, or 0 for none"
        )
    if why == "late":
        return UsageError(
            f"run {run.name} cannot go on: what was left when its page limit ended it was kept for a day and is gone",
            hint="start it anew: the same command with --fresh",
        )
    if why == "replaced":
        return UsageError(
            f"run {run.name} cannot go on: run {about} goes on in its place",
            hint=f"cancel that one first: shoal cancel {about}",
        )
    return UsageError(
        f"run {run.name} is {run.state}, and not because of its page limit: another one changes nothing",
        hint="start a new one with --fresh",
    )
