"""Auth: secrets as the values of Authorization headers."""

from __future__ import annotations

from base64 import b64encode


def authorization_header(secret: str) -> str:
    """ "user:password" as Basic, any other text as a Bearer token."""
    if ":" in secret:
        return "Basic " + b64encode(secret.encode()).decode("ascii")
    return f"Bearer {secret}"
