"""TrustStore: a home folder for browsers in which they find the certificates of `--ca-file`, beside those they know."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from shoal.errors import UsageError
from shoal.fetch.browser import import_certificates

IMPORT_TIMEOUT = 60.0  # seconds
_DATABASE = Path(".pki") / "nssdb"  # in the home of a browser's user


def make_trusting_home(folder: Path, ca_file: str) -> Path:
    """A home below the folder, with what the user's own browsers trust, and the certificates of the file."""
    home = folder / "home"
    try:
        why = _fill(home / _DATABASE, ca_file)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    if why:
        shutil.rmtree(home, ignore_errors=True)
        raise UsageError(
            f"the certificates of --ca-file cannot be given to the browser: {why}",
            hint="name a file of certificates in PEM; NSS adds them, which comes with Chromium (libnss3 on Debian)",
        )
    return home


def _fill(database: Path, ca_file: str) -> str:
    """Says why it cannot be done."""
    former = Path(os.environ.get("HOME", "/nonexistent")) / _DATABASE
    if former.is_dir():
        shutil.copytree(former, database)
    else:
        database.mkdir(parents=True)
    command = [sys.executable, "-IS", import_certificates.__file__, str(database), str(Path(ca_file).absolute())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_TIMEOUT, check=False)  # noqa: S603
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""
