"""Stats: the exact account of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec


class Stats(msgspec.Struct, frozen=True):
    seen: int = 0
    ready: int = 0  # includes delayed
    delayed: int = 0
    leased: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    records: int = 0
    retries: int = 0
    lost: int = 0  # leases lost with their workers
    stale: int = 0  # late answers that were dropped
    bytes: int = 0
    trimmed: int = 0  # of the records, so many have gone to a store of their own
    discarded: int = 0  # dead letters that were removed when their retention was over; `dead` are those still there
    aside: int = 0  # of those done and dead, so many are of a built-in kind (sitemaps): they are no pages
    outbox: int = 0  # entries that settled tasks left for elsewhere, and nobody has acknowledged yet
    in_transit: int = 0  # links on their way from one shard to another, which is yet to say whether they are new
    claimable: int = 0  # could be handed out this second; bounded by the lanes that are due
    skipped: dict[str, int] = {}  # links refused by rule, by reason; these are not tasks
    needs: dict[str, int] = {}  # ready tasks, without delayed ones, by the capabilities they need ("browser+exit:de")
    away: tuple[str, ...] = ()  # shards that do not answer: of them this is what was last known

    @property
    def open(self) -> int:
        return self.ready + self.leased + self.in_transit

    @property
    def ended_pages(self) -> int:
        """What counts towards the page limit of the run, beside what is leased."""
        return self.done + self.failed - self.aside

    @property
    def failed(self) -> int:
        """All that failed for good, whether its dead letter is still there or not."""
        return self.dead + self.discarded

    @property
    def is_over(self) -> bool:
        """Whether nothing is open and nothing waits to be drained."""
        return not self.open and not self.outbox and not self.away

    @property
    def is_balanced(self) -> bool:
        return self.seen + self.in_transit == self.done + self.failed + self.cancelled + self.open


def sum_stats(accounts: Sequence[Stats]) -> Stats:
    """The accounts of several runs, or of several parts of one, in one."""
    skipped, needs = Counter[str](), Counter[str]()
    for one in accounts:
        skipped.update(one.skipped)
        needs.update(one.needs)
    counts = {name: sum(getattr(one, name) for one in accounts) for name in SUMMED_FIELDS}
    away = tuple(dict.fromkeys(name for one in accounts for name in one.away))
    return Stats(**counts, skipped=dict(skipped), needs=dict(needs), away=away)


SUMMED_FIELDS = tuple(name for name in Stats.__struct_fields__ if name not in ("skipped", "needs", "away"))
