"""Refusal: what a server's answer, or its silence, means for whoever asked; in words for people."""

from __future__ import annotations

import contextlib
import ssl
from typing import Any

import msgspec

from shoal import errors
from shoal.errors import Act, QueueRefused, QueueUnavailable
from shoal.logs import redact
from shoal.queue.http.address import Address
from shoal.queue.http.wire import Answer, NotHttp

WAY_OUT = "shoal token add NAME --scope work on the server's side, then SHOAL_TOKEN=… here"
GUESSED = "urn:shoal:problem:too-many-guesses"


def said(answer: Answer) -> dict[str, Any]:
    """The problem that a server tells of; nothing if it is a proxy's page."""
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    return {}


def refusal(address: Address, answer: Answer) -> Act:
    told = said(answer)
    words, hint = str(told.get("detail", "")), str(told.get("hint", ""))
    if answer.status == 401 or told.get("type") == GUESSED:
        why = words if address.token else "it needs a token"
        return QueueRefused(f"{address.place} refuses: {why or answer.status}", hint=WAY_OUT)
    if answer.status == 403:
        allowed = "not-allowed" not in str(told.get("type", ""))
        return QueueRefused(
            f"{address.place} refuses: {words or answer.status}",
            hint=hint if hint and allowed else WAY_OUT,
        )
    kind = getattr(errors, str(told.get("error", "")), None)
    if isinstance(kind, type) and issubclass(kind, Act):
        return kind(words, hint=hint)
    if answer.status in (408, 429, 502, 503, 504):
        return QueueUnavailable(
            f"{address.place} is busy or starting ({answer.status})",
            hint="check that shoal serve runs there, and that its queue answers",
        )
    if 300 <= answer.status < 400:
        return QueueRefused(
            f"{address.place} leads elsewhere, and a token goes only where it was meant to go",
            hint=f"if it is right, give that address: {redact(answer.location) or 'it names none'}",
        )
    if answer.status == 200:
        return strange(address, f"it answers with {answer.kind or 'something'}, not as a shoal server does")
    return strange(address, words or f"it answered {answer.status}")


def strange(address: Address, why: str) -> QueueRefused:
    return QueueRefused(
        f"{address.place}: {why}", hint="is this the address of `shoal serve`, of the same version?"
    )


def gone(address: Address, error: OSError) -> Act:
    if isinstance(error, ssl.SSLCertVerificationError):
        return QueueRefused(
            f"{address.place} shows a certificate that is not trusted: {error.verify_message}",
            hint="--ca-file FILE names the certificates to trust; the name must be the one it is for",
        )
    if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return QueueRefused(f"{address.place} does not speak TLS", hint="http://… if it is on this machine")
    if isinstance(error, NotHttp):
        return strange(address, str(error))
    why = str(error) or type(error).__name__
    return QueueUnavailable(
        f"{address.place} cannot be reached ({why})", hint="check that shoal serve runs there"
    )
