"""Torrc: the configuration of a tor: what we decide about it, and what this machine's settings add."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from shoal.errors import UsageError

MAX_LINES = 200
MAX_LINE = 2_000  # letters
CONTROL_PORT_FILE, COOKIE_FILE = "control-port", "cookie"
_OWN_LINES = """\
DataDirectory {folder}/data
ControlPort auto
ControlPortWriteToFile {folder}/{port_file}
CookieAuthentication 1
CookieAuthFile {folder}/{cookie_file}
SocksPort auto IsolateSOCKSAuth KeepAliveIsolateSOCKSAuth
ClientOnly 1
AvoidDiskWrites 1
__OwningControllerProcess {pid}
Log notice stdout
"""
# What only we decide, or else there is no way to it, or it outlives us.
_OWN_OPTIONS = (
    *("DataDirectory", "CacheDirectory", "KeyDirectory", "PidFile", "RunAsDaemon", "User", "ClientOnly"),
    *("ControlPort", "ControlSocket", "ControlPortWriteToFile", "CookieAuthentication", "CookieAuthFile"),
    *("HashedControlPassword", "__OwningControllerProcess", "SocksPort", "HTTPTunnelPort", "TransPort"),
    *("NATDPort", "DNSPort", "ORPort", "ExtORPort", "DirPort", "HiddenServiceDir", "Log"),
)
_OWN_NAMES = {name.lower(): name for name in _OWN_OPTIONS}


def torrc_text(folder: Path, extra: Sequence[str]) -> str:
    """Ours come last: of two lines tor takes the later one."""
    own = _OWN_LINES.format(folder=folder, port_file=CONTROL_PORT_FILE, cookie_file=COOKIE_FILE, pid=os.getpid())
    return "".join(f"{line}\n" for line in extra) + own


def check_torrc(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines without empty ones and comments; raises UsageError for what cannot be added."""
    found = tuple(line for line in map(str.strip, lines) if line and not line.startswith("#"))
    if len(found) > MAX_LINES:
        raise UsageError(f"{len(found):,} lines: {MAX_LINES} is the most", hint="leave some out")
    for line in found:
        if len(line) > MAX_LINE or not line.isprintable() or line.endswith("\\"):
            raise UsageError(f"the line {line[:60]!r} cannot be read", hint="one option a line, as in a torrc")
        name = line.split()[0].lstrip("+/")
        if name.startswith("%"):
            raise UsageError(f"{name} is not understood here", hint="write the lines themselves")
        # tor also understands the beginning of a name.
        own = next((own for lower, own in _OWN_NAMES.items() if name and lower.startswith(name.lower())), None)
        if own is not None:
            raise UsageError(f"{own} is not for you to set: each worker process sets its own", hint="leave it out")
    return found
