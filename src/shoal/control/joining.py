"""Joining: the command that puts one more worker to work on a run."""

from __future__ import annotations

import shlex

from shoal.core.run import Run
from shoal.logs import redact
from shoal.settings import SETTINGS, Settings

BATCH_SIZE = 50  # what is suggested


def worker_command(settings: Settings, run: Run) -> str:
    """The exact command, for anywhere that has the code; a password is never in it.

    The queue is named only if it was by a flag: the environment and the settings file go without saying.
    """
    code = run.spec.get("code")
    target = [str(code["target"])] if isinstance(code, dict) and code.get("target") else []
    words = ["shoal", "worker", *target, "--run-id", run.name]
    words += ["--batch-size", str(settings.batch_size or BATCH_SIZE)]
    if by_flag(settings) and not secret(settings.queue):
        words += ["--queue", settings.queue]
    return shlex.join(words)


def by_flag(settings: Settings) -> bool:
    return settings.sources.get("queue") == SETTINGS["queue"].flag


def secret(address: str) -> bool:
    """Whether an address has a password in it, or anything else that must not be shown."""
    return redact(address.replace("://", ":/", 1)) != address.replace("://", ":/", 1) or (
        ":" in address.partition("://")[2].rpartition("@")[0]
    )
