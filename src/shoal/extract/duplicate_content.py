"""DuplicateContent: how often a site has served the very same page under other URLs."""

from __future__ import annotations

from collections import OrderedDict

MIN_BYTES = 200  # shorter ones ("ok", an empty list) are the same by right
EDGE_BYTES = 1_000_000  # of a longer body, this much from its beginning and its end
MAX_FINGERPRINTS = 20_000


class DuplicateContent:
    """Fingerprints of the bodies one worker process has seen, the least recently met forgotten first.

    The same means byte for byte. To overlook digits would find more traps, and take every table of
    numbers for one.
    """

    __slots__ = ("_counts", "_size")

    def __init__(self, size: int = MAX_FINGERPRINTS) -> None:
        self._size = size
        self._counts: OrderedDict[int, int] = OrderedDict()

    def times_seen(self, lane: str, body: bytes) -> int:
        """How often this lane gave the same content before; this time is counted."""
        if len(body) < MIN_BYTES:
            return 0
        key = _fingerprint(lane, body)
        before = self._counts.get(key, 0)
        self._counts[key] = before + 1
        self._counts.move_to_end(key)
        if len(self._counts) > self._size:
            self._counts.popitem(last=False)
        return before

    def __len__(self) -> int:
        return len(self._counts)


def _fingerprint(lane: str, body: bytes) -> int:
    # Python's own hash of bytes is keyed and four times as fast as a cryptographic one.
    if len(body) <= 2 * EDGE_BYTES:
        return hash((lane, body))
    return hash((lane, len(body), body[:EDGE_BYTES], body[-EDGE_BYTES:]))
