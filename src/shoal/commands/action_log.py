"""The action log of commands: what people do at a terminal is kept with what they do through API and pages."""

from __future__ import annotations

import getpass
import socket
from typing import Any

from shoal.control.actions import UserActions
from shoal.errors import ActionRequired
from shoal.logs import log
from shoal.queue.base import Queue


def user_name() -> str:
    """Who is at the terminal; empty where the system does not know."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


async def log_command(queue: Queue, what: str, about: str, **more: Any) -> None:
    """Keep an action that a command has taken; that it cannot be kept does not undo it.

    Behind a server the queue refuses it: that server keeps the action itself, by the name of the token.
    """
    who = f"{user_name() or 'somebody'}@{socket.gethostname()}"
    try:
        await UserActions(queue, who, via="command").log_action(what, about, **more)
    except ActionRequired as error:
        log("action.not_kept", "info", what=what, about=about, error=str(error))
