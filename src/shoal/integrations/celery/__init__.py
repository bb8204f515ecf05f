"""shoal in the processes of Celery: `celery -A shoal.integrations.celery worker`, or `install(app)` for another app."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.core.celery_task import CeleryTask
    from shoal.integrations.celery.install import install

    app: Any

__all__ = ["CeleryTask", "app", "install"]
_HOMES = {"CeleryTask": "shoal.core.celery_task", "install": "shoal.integrations.celery.install"}


def __getattr__(name: str) -> Any:
    """Whoever needs one of these loads no other; the app is made when Celery looks for it."""
    if name == "app":
        value = import_module("shoal.integrations.celery.ready_app").ready_app()
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
