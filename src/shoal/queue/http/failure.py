"""Failure: what a server's error response, or a broken connection, means, as our own errors."""

from __future__ import annotations

import contextlib
import ssl
from typing import Any

import msgspec

from shoal import errors
from shoal.errors import ActionRequired, QueueRefused, QueueUnavailable
from shoal.logs import redact
from shoal.queue.http.server_url import HttpServerUrl
from shoal.queue.http_connection import NotHttpError, ServerResponse

ACCESS_HINT = "shoal token add NAME --scope work on the server's side, then SHOAL_TOKEN=… here"
TOO_MANY_GUESSES = "urn:shoal:problem:too-many-invalid-tokens"


def problem_details(response: ServerResponse) -> dict[str, Any]:
    """The problem that a server tells of; nothing if it is a proxy's page."""
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(response.body, type=dict[str, Any])
    return {}


def translate_response(server_url: HttpServerUrl, response: ServerResponse) -> ActionRequired:
    problem = problem_details(response)
    words, hint = str(problem.get("detail", "")), str(problem.get("hint", ""))
    if response.status == 401 or problem.get("type") == TOO_MANY_GUESSES:
        why = words if server_url.token else "it needs a token"
        return QueueRefused(f"{server_url.display_url} refuses: {why or response.status}", hint=ACCESS_HINT)
    if response.status == 403:
        allowed = "insufficient-scope" not in str(problem.get("type", ""))
        return QueueRefused(
            f"{server_url.display_url} refuses: {words or response.status}",
            hint=hint if hint and allowed else ACCESS_HINT,
        )
    kind = getattr(errors, str(problem.get("error", "")), None)
    if isinstance(kind, type) and issubclass(kind, ActionRequired):
        return kind(words, hint=hint)
    if response.status in (408, 429, 502, 503, 504):
        return QueueUnavailable(
            f"{server_url.display_url} is busy or starting ({response.status})",
            hint="check that shoal serve runs there, and that its queue answers",
        )
    if 300 <= response.status < 400:
        return QueueRefused(
            f"{server_url.display_url} redirects elsewhere, and a token is sent only to its own server",
            hint=f"if that is right, use this URL: {redact(response.location) or 'it names none'}",
        )
    if response.status == 200:
        return not_a_shoal_server(
            server_url, f"it answers with {response.kind or 'something'}, not as a shoal server does"
        )
    return not_a_shoal_server(server_url, words or f"it answered {response.status}")


def not_a_shoal_server(server_url: HttpServerUrl, why: str) -> QueueRefused:
    return QueueRefused(
        f"{server_url.display_url}: {why}", hint="is this the URL of `shoal serve`, of the same version?"
    )


def translate_connection_error(server_url: HttpServerUrl, error: OSError) -> ActionRequired:
    if isinstance(error, ssl.SSLCertVerificationError):
        return QueueRefused(
            f"{server_url.display_url} has a certificate that is not trusted: {error.verify_message}",
            hint="--ca-file FILE names the certificates to trust; the host name must match",
        )
    if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return QueueRefused(f"{server_url.display_url} does not speak TLS", hint="http://… if it is on this machine")
    if isinstance(error, NotHttpError):
        return not_a_shoal_server(server_url, str(error))
    why = str(error) or type(error).__name__
    return QueueUnavailable(
        f"{server_url.display_url} cannot be reached ({why})", hint="check that shoal serve runs there"
    )
