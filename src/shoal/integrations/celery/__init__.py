"""shoal in the processes of Celery: `celery -A shoal.integrations.celery worker`, or `install(app)` for another app."""

from __future__ import annotations

from typing import Any

from shoal.integrations.celery.install import install

__all__ = ["app", "install"]


def __getattr__(name: str) -> Any:
    """Make the app when Celery looks for it: whoever only installs into an app of their own needs none."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shoal.integrations.celery.ready_app import ready_app

    made = globals()["app"] = ready_app()
    return made
