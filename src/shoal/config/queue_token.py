"""Queue token: a token goes to the server that it was given for, and to no other.

The queue may be named by a settings file of whatever folder one is in. So a token from the environment or a flag
counts for a queue that was given in one of these ways too; one from a file for the queue of the same file. One
that begins with its server, "https://shoal.example=…", goes there from anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from shoal.config.setting import PREFIX
from shoal.config.settings import Settings
from shoal.core.url import is_loopback_host
from shoal.errors import UsageError

_PORTS = {"http": 80, "https": 443}
_split_bound = re.compile(r"(https?://[^=\s]*)=(.*)", re.IGNORECASE | re.DOTALL).fullmatch

_Origin = tuple[str, str, int]  # scheme, host and port


def queue_token(settings: Settings) -> str:
    """What is sent to the server of the queue; raises UsageError if there is a token for another."""
    server = _server_of(settings.queue)
    if server is None or not settings.token or _has_token(settings.queue):
        return ""
    bound, token = _split(settings.token)
    given_by, named_by = (settings.sources.get(name, "") for name in ("token", "queue"))
    if bound is None and _belong_together(settings, given_by, named_by):
        return token
    if bound is not None and bound == server:
        return token
    where = _text(server)
    if bound is not None:
        raise UsageError(
            f"the token of {given_by or 'this command'} is for {_text(bound)}, and the queue is {where}",
            hint=f"give the one for it: {PREFIX}TOKEN='{where}=…'; or unset {PREFIX}TOKEN if it needs none",
        )
    raise UsageError(
        f"the token of {given_by or 'this command'} is not sent to {where}, which {_place(named_by)} names:"
        " they were not given together",
        hint=f"if it is for that server: {PREFIX}TOKEN='{where}=…', or --queue {where}",
    )


def server_token(settings: Settings) -> str:
    """The token that a server of these settings asks its own callers for."""
    bound, token = _split(settings.token)
    if bound is None:
        return token
    if _server_of(settings.queue) is not None:
        return ""  # it is for the server behind this one
    raise UsageError(
        f"the token is for {_text(bound)}, and a server's own is given without an address",
        hint=f"{PREFIX}TOKEN=… with nothing before it",
    )


def unencrypted_note(settings: Settings) -> str:
    """What to say if the token can be read on its way; empty if it cannot."""
    server = _server_of(settings.queue)
    if server is None or server[0] == "https" or is_loopback_host(server[1]):
        return ""
    if not settings.token and not _has_token(settings.queue):
        return ""
    return (
        f"The token goes to {_text(server)} unencrypted: whoever is on the way can read it."
        " Put TLS in front of that server, and use https://."
    )


def queue_ca_file(settings: Settings) -> str:
    """The certificates that the queue's server is checked with: not those of a file that was just found.

    Whoever wrote it could otherwise vouch for a server in place of the one that a person named.
    """
    given_by, named_by = (settings.sources.get(name, "") for name in ("ca_file", "queue"))
    if _is_given(settings, given_by) or _place(given_by) == _place(named_by):
        return settings.ca_file
    return ""


def check_database_passwords(settings: Settings, env: Mapping[str, str]) -> None:
    """PGPASSWORD does not go to a database that only a file in this folder names; raises UsageError."""
    if not env.get("PGPASSWORD"):
        return
    for name, url in (("queue", settings.queue), ("store", settings.store)):
        named_by = settings.sources.get(name, "")
        if not _is_passwordless_database(url) or not named_by or _is_given(settings, named_by):
            continue
        where = urlsplit(url).netloc.rpartition("@")[2] or "the local database"
        raise UsageError(
            f"PGPASSWORD is not sent to {where}, which {_place(named_by)} names: they were not given together",
            hint=f"if it is for that server: {PREFIX}{name.upper()}={url}; if not, unset PGPASSWORD",
        )


def _is_passwordless_database(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("postgresql", "postgres") and not parts.password and "password=" not in parts.query


def _belong_together(settings: Settings, given_by: str, named_by: str) -> bool:
    if _is_given(settings, given_by) and _is_given(settings, named_by):
        return True
    return ": " in given_by and _place(given_by) == _place(named_by)


def _has_token(url: str) -> bool:
    """Whether a URL brings a token of its own, which is used instead; an empty one is none."""
    parts = urlsplit(url)
    return bool(parts.password or parts.username)


def _is_given(settings: Settings, source: str) -> bool:
    """By a person: as a flag, in the environment, or in a file that was named and not just found."""
    return source.startswith(("--", PREFIX)) or _place(source) in settings.named_files


def _place(source: str) -> str:
    """The file of "shoal.toml: queue"."""
    return source.rpartition(": ")[0] or source


def _split(text: str) -> tuple[_Origin | None, str]:
    found = _split_bound(text.strip())
    if found is None:
        return None, text.strip()
    server = _server_of(found[1])
    if server is None or not found[2]:
        raise UsageError(
            f"{PREFIX}TOKEN is not understood: it begins like an address, and is not a server's with a token behind it",
            hint=f"{PREFIX}TOKEN='https://shoal.example=…'",
        )
    return server, found[2]


def _server_of(url: str) -> _Origin | None:
    """Of a shoal server's URL; None for any other, and for one that opening it will refuse."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if not host.isascii():
            host = host.encode("idna").decode("ascii")
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not host:
        return None
    return parts.scheme, host, port or _PORTS[parts.scheme]


def _text(server: _Origin) -> str:
    scheme, host, port = server
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}" if port == _PORTS[scheme] else f"{scheme}://{shown}:{port}"
