"""The local token's file: how this user's programs get into a server that cannot see whose they are."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from urllib.parse import urlsplit

from shoal.config.settings import STATE_FOLDER
from shoal.core.url import is_loopback_host

MAX_LENGTH = 200  # characters of a token


def token_file(state_folder: Path, port: int) -> Path:
    """Of the server at a port of this machine: what is sent to another port is never this one's."""
    return state_folder / f"server-{port}.token"


def write_token(file: Path, text: str) -> None:
    """For this user alone; whole from the first moment. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    hidden = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    number = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(number, "w", encoding="ascii") as made:
            made.write(text + "\n")
        hidden.replace(file)
    except OSError:
        hidden.unlink(missing_ok=True)
        raise


def find_token(queue: str) -> str:
    """The local token of the server that a queue's URL names, if it was started in this folder; else empty."""
    with contextlib.suppress(ValueError, OSError):
        parts = urlsplit(queue)
        if parts.scheme == "http" and is_loopback_host(parts.hostname or ""):
            for folder in (Path(STATE_FOLDER), *sorted(Path(STATE_FOLDER).glob("*/"))):
                file = token_file(folder, parts.port or 80)
                if file.is_file() and file.stat().st_uid == os.geteuid():
                    return file.read_text("ascii")[:MAX_LENGTH].strip()
    return ""
