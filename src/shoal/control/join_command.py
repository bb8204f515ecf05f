"""The command that starts one more worker for a run."""

from __future__ import annotations

import shlex

from shoal.config.settings import SETTINGS, Settings
from shoal.core.run import Run
from shoal.logs import redact

SUGGESTED_BATCH_SIZE = 50  # what is suggested


def join_command(settings: Settings, run: Run) -> str:
    """The exact command, for anywhere that has the code; a password is never in it.

    The queue is named only if it was by a flag: the environment and the settings file go without saying.
    """
    code = run.spec.get("code")
    target = [str(code["target"])] if isinstance(code, dict) and code.get("target") else []
    words = ["shoal", "worker", *target, "--run-id", run.name]
    words += ["--batch-size", str(settings.batch_size or SUGGESTED_BATCH_SIZE)]
    if queue_given_by_flag(settings) and not has_secret(settings.queue):
        words += ["--queue", settings.queue]
    return shlex.join(words)


def queue_given_by_flag(settings: Settings) -> bool:
    return settings.sources.get("queue") == SETTINGS["queue"].flag


def has_secret(url: str) -> bool:
    """Whether a URL has a password in it, or anything else that must not be shown."""
    return redact(url.replace("://", ":/", 1)) != url.replace("://", ":/", 1) or (
        ":" in url.partition("://")[2].rpartition("@")[0]
    )
