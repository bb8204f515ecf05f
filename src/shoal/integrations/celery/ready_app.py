"""The ready app: everything from the environment, nothing to write."""

from __future__ import annotations

from typing import Any

from shoal.control.celery.broker import celery_app
from shoal.control.celery.options import read_options
from shoal.errors import UsageError
from shoal.integrations.celery.install import install


def ready_app() -> Any:
    try:
        options = read_options()
        app = celery_app(options)
    except UsageError as error:  # Celery shows the words alone
        raise UsageError(f"{error}: {error.hint}", hint=error.hint) from None
    return install(app, options=options, eager=True)
