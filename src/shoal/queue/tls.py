"""TLS towards the servers of a queue."""

from __future__ import annotations

import ssl

from shoal.errors import UsageError


def tls_context(ca_file: str) -> ssl.SSLContext:
    """With the system's certificates, or those of a file."""
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise UsageError(
            f"the certificates in {ca_file} cannot be read: {error.strerror or error}",
            hint="--ca-file names a file with certificates in PEM form",
        ) from error
