"""DeferredOutcomes: those for a part of the queue that is away: kept and tried again while others are settled."""

from __future__ import annotations

from collections.abc import Callable

from shoal.core.task import Outcome

RETRY_SECONDS = 0.5


class DeferredOutcomes:
    def __init__(self, clock: Callable[[], float], outage_timeout: float) -> None:
        self._clock = clock
        self._outage_timeout = outage_timeout
        self._kept: list[Outcome] = []
        self._keys: set[tuple[int, int]] = set()  # of those
        self._since: dict[tuple[int, int], float] = {}  # also of those that are being tried again

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, outcome: Outcome) -> bool:
        """Keep one for later; False: it has been tried for so long that its task had better run again."""
        key = outcome.task, outcome.lease
        now = self._clock()
        if now - self._since.setdefault(key, now) > self._outage_timeout:
            return False
        self._kept.append(outcome)
        self._keys.add(key)
        return True

    def keep_in_order(self, batch: list[Outcome]) -> list[Outcome]:
        """The batch without what must not overtake an earlier part of the same outcome: that waits as well."""
        if not self._keys:
            return batch
        self._kept += [it for it in batch if (it.task, it.lease) in self._keys]
        return [it for it in batch if (it.task, it.lease) not in self._keys]

    def forget(self, outcome: Outcome) -> None:
        """It has been answered."""
        if self._since:
            self._since.pop((outcome.task, outcome.lease), None)

    def take(self) -> list[Outcome]:
        """All of them, in their order, to be tried again."""
        kept, self._kept = self._kept, []
        self._keys.clear()
        return kept
