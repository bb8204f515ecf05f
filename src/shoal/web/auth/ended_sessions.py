"""Ended sessions: those that were logged out before their time, known to all servers of a queue."""

from __future__ import annotations

import time

import msgspec

from shoal.queue import document_kinds as kinds
from shoal.queue.base import Documents
from shoal.web.auth.session import Session

NAME = "ended"
MAX_ENDED = 10_000  # sessions; beyond it those are forgotten that would end first


async def ended_sessions(queue: Documents) -> frozenset[str]:
    """What they are told apart by."""
    document = await queue.document(kinds.SESSION_ENDED, NAME)
    return frozenset(_decode(document.text)) if document is not None else frozenset()


async def end_session(queue: Documents, session: Session) -> None:
    """Refuse its cookie from now on, whoever has a copy of it."""
    while True:
        document = await queue.document(kinds.SESSION_ENDED, NAME)
        known = _decode(document.text) if document is not None else {}
        known[session.nonce] = session.until
        lasting = sorted((until, nonce) for nonce, until in known.items() if until > time.time())
        kept = {nonce: until for until, nonce in lasting[-MAX_ENDED:]}
        text = msgspec.json.encode(kept).decode()
        if await queue.compare_and_swap(kinds.SESSION_ENDED, NAME, text, document.version if document else 0):
            return


def _decode(text: str) -> dict[str, int]:
    try:
        return msgspec.json.decode(text, type=dict[str, int])
    except msgspec.DecodeError:
        return {}  # of another version
