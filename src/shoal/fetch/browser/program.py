"""Program: which browser this machine has, and what keeps it from being used."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from shoal.errors import UsageError
from shoal.version import install_hint

# The headless shell first: a third of the memory and half of the processor time of the whole browser.
_REAL_PROGRAMS = ("/usr/lib/chromium/chromium-headless-shell", "/usr/lib/chromium/chromium")
_COMMANDS = (
    *("chromium-headless-shell", "chrome-headless-shell", "chromium", "chromium-browser"),
    *("google-chrome-stable", "google-chrome"),
)
NO_NAMESPACES = "processes get no user namespaces here, as in containers with the usual seccomp profile"
_UNSHARE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"  # CLONE_NEWUSER
INSTALL_HINT = f"{install_hint('browser')}; on Debian and Ubuntu: apt-get install chromium-headless-shell"


def is_remote(browser: str) -> bool:
    """Whether it is a browser elsewhere, by its DevTools endpoint."""
    return browser.startswith(("ws://", "wss://", "http://", "https://"))


def find_program(browser: str = "") -> str:
    """The path of the browser's program; raises UsageError where there is none."""
    if browser:
        found = shutil.which(browser)
        if found is None:
            raise UsageError(f"there is no program {browser}", hint="name one with --browser, or leave it out")
        return found
    for path in _REAL_PROGRAMS:  # not by the system's scripts, which would stand between us and the process
        if os.access(path, os.X_OK):
            return path
    for name in _COMMANDS:
        if found := shutil.which(name):
            return found
    raise UsageError("no browser is installed here", hint=INSTALL_HINT)


def missing_reason(browser: str = "") -> str:
    """Why pages cannot be fetched by a browser here; empty if they can."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed"
    if is_remote(browser):
        return ""
    try:
        find_program(browser)
    except UsageError as error:
        return str(error)
    return ""


def sandbox_problem() -> str:
    """Why the browser must run without its sandbox here; empty if it runs in it."""
    if os.geteuid() == 0:
        return "this process is root's, and Chromium's sandbox works for other users only"
    allowed = Path("/proc/sys/kernel/unprivileged_userns_clone")
    try:
        if allowed.read_text().strip() == "0":
            return "the kernel gives ordinary users no namespaces (kernel.unprivileged_userns_clone=0)"
    except OSError:
        pass  # such kernels have no switch for it
    return "" if _gives_namespaces() else NO_NAMESPACES


@lru_cache(1)
def _gives_namespaces() -> bool:
    """Whether a process of ours may have a user namespace: containers often forbid it. Asked of a process that ends."""
    command = [sys.executable, "-IS", "-c", _UNSHARE]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0  # noqa: S603
