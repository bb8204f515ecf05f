"""CircuitKeys: who shares a circuit of a tor, and when they get a new one.

Pure: the caller brings time and randomness. Streams with different keys never share a circuit (IsolateSOCKSAuth), so
that a new key is a new circuit, at once and for nobody else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoal.core.session import is_identity
from shoal.fetch.exits.options import Sticky

MAX_KEYS = 10_000  # those not used for longest lose theirs: a new circuit, no more


@dataclass(slots=True)
class _Key:
    name: str
    since: float
    refusals: int = 0  # in a row


class CircuitKeys:
    def __init__(self, sticky: Sticky, rotate: float, new_after: int, make_key: Callable[[], str]) -> None:
        """rotate: seconds for which a key is used; new_after: refusals in a row. 0: neither ends it."""
        self._sticky = sticky
        self._rotate = rotate
        self._new_after = new_after
        self._make_key = make_key
        self._keys: dict[tuple[str, str], _Key] = {}  # used last comes last

    def key(self, session: str, host: str, now: float) -> str:
        owner = self._owner(session, host)
        found = self._keys.pop(owner, None)
        is_over = bool(self._rotate) and found is not None and now - found.since >= self._rotate
        if found is None or (is_over and not is_identity(session)):
            found = _Key(self._make_key(), now)
        self._keys[owner] = found
        if len(self._keys) > MAX_KEYS:
            del self._keys[next(iter(self._keys))]
        return found.name

    def renew(self, session: str, host: str = "") -> None:
        """Whoever asks so gets a new one; without a host: the session, wherever it goes."""
        if host:
            self._keys.pop(self._owner(session, host), None)
        else:
            self._keys = {owner: key for owner, key in self._keys.items() if owner[0] != session}

    def renew_all(self) -> None:
        self._keys.clear()

    def note_answer(self, session: str, host: str, *, is_refusal: bool) -> bool:
        """Whether that was one refusal too many: then the next request has a new key."""
        found = self._keys.get(self._owner(session, host))
        if found is None:
            return False
        found.refusals = found.refusals + 1 if is_refusal else 0
        if not self._new_after or found.refusals < self._new_after or is_identity(session):
            return False
        self.renew(session, host)
        return True

    def _owner(self, session: str, host: str) -> tuple[str, str]:
        if session and (self._sticky != "host" or is_identity(session)):
            return session, ""
        return session, "" if self._sticky == "none" else host
