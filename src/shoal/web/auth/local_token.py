"""The local token: asked for where there are no others, and the system does not say whose program connects.

There is one for each queue: all its servers make it from the key that they share. It is written to a file that
only this user can read; for a browser there is a link that works once.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
from pathlib import Path

from shoal.config.local_token import write_token
from shoal.logs import log
from shoal.web.auth.access import LOOPBACK_CALLER
from shoal.web.auth.tokens import Token, digest_of


class LocalToken:
    def __init__(self, text: str, file: Path) -> None:
        self._text = text
        self._file = file
        self._was_tried = False
        self._link_key = ""
        self.path = ""  # where it was written to
        self.token = Token(LOOPBACK_CALLER.name, digest_of(text), tuple(sorted(LOOPBACK_CALLER.scopes)))

    def write(self) -> None:
        """Once; a folder that cannot be written to stops nobody."""
        if self._was_tried:
            return
        self._was_tried = True
        try:
            write_token(self._file, self._text)
            self.path = str(self._file)
        except OSError as error:
            hint = "run it in a folder that you may write to, or: shoal token add NAME --scope admin"
            log("local_token.not_written", "warning", file=str(self._file), error=error.strerror, hint=hint)

    def remove(self) -> None:
        """The server ends: whoever listens at its port next is not told."""
        if self.path:
            with contextlib.suppress(OSError):
                self._file.unlink()

    def new_link(self, server_url: str) -> str:
        """A link that logs in whoever opens it first."""
        self._link_key = secrets.token_urlsafe(24)
        return f"{server_url}/login/once?key={self._link_key}"

    def use_link(self, key: str) -> bool:
        """Whether this is the key of the link; it is not any more from now on."""
        fits = bool(self._link_key) and hmac.compare_digest(self._link_key.encode(), key.encode("utf-8", "replace"))
        if fits:
            self._link_key = ""
        return fits
