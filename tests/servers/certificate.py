"""A certificate of a test's own, made by the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def can_make() -> bool:
    return shutil.which("openssl") is not None


def make(place: Path, names: str = "DNS:localhost,IP:127.0.0.1") -> Path:
    """A folder with cert.pem and key.pem for these names."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    command += f" -keyout key.pem -out cert.pem -subj /CN=localhost -addext subjectAltName={names}"
    subprocess.run(command.split(), cwd=place, check=True, capture_output=True)
    return place
