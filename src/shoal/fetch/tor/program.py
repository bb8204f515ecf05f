"""Program: which tor this machine has."""

from __future__ import annotations

import re
import shutil
import subprocess

from shoal.errors import UsageError

INSTALL_HINT = "on Debian and Ubuntu: apt-get install tor; the service of the system need not run"
VERSION_TIMEOUT = 10.0  # seconds
_SYSTEM_PATH = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"  # where it is, for users whose PATH is shorter
_version = re.compile(r"Tor version (\S+?)\.?$", re.MULTILINE).search


def find_tor(program: str = "") -> str:
    """The path of the program; raises UsageError where there is none that can be run."""
    name = program or "tor"
    found = shutil.which(name) or shutil.which(name, path=_SYSTEM_PATH)
    if found is None and program:
        raise UsageError(f"there is no program {program} that can be run", hint="name another, or leave it out")
    if found is None:
        raise UsageError("tor is not installed here", hint=INSTALL_HINT)
    return found


def tor_version(path: str) -> str:
    """What the program calls itself; empty where it does not say."""
    try:
        said = subprocess.run(  # noqa: S603 - the program of this machine's settings
            [path, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _version(said.stdout)
    return found[1] if found else ""
