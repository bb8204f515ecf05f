"""Budget: who may start a page of a run, and how much of what the run may use is left for it. Pure.

All workers share one ledger. Before a worker starts a page it takes its share from what is left, and it gives back
what the page did not need: so together they stay within the budget, however many they are. What a page will cost is
not known before; a share is twice what the most expensive page of late has cost. Where less than that is left, pages
are fetched one at a time, and where even such a page may be too much, the budget is spent. So is the first page
of a run fetched alone: nothing is known yet.

What a worker that is gone had in progress is unknown and counts as spent, as much as its pages may have cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from shoal.core.budget_text import KINDS, budget_amounts
from shoal.core.cost import NOTHING, Cost, highest

MARGIN = 2  # times the most expensive page of late that is set aside for one
PORTION = 4  # a worker takes no more than this part of what is left at once


def budget_limits(text: str) -> Cost:
    """0: no limit."""
    return Cost(**budget_amounts(text))


def limited_kinds(limits: Cost) -> tuple[str, ...]:
    return tuple(kind for kind in KINDS if limits.get(kind))


class Share(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one worker process has set aside: for its pages in progress, and for those that it starts next."""

    until: int  # microseconds of the store's clock; later it is given up
    reserved: Cost = NOTHING
    at_risk: Cost = NOTHING  # of that: what its pages in progress may take at most, however many it starts
    largest: Cost = NOTHING  # of its pages of late, each kind by itself
    begun: Cost = NOTHING  # of reserved: what its pages in progress were given when they began, ...
    pages: Cost = NOTHING  # ... and how many of them may use each kind


class Ledger(msgspec.Struct, frozen=True, omit_defaults=True):
    limits: Cost = NOTHING
    shares: dict[str, Share] = {}
    lost: Cost = NOTHING  # of pages whose outcome nobody knows or took
    largest: Cost = NOTHING  # of all workers' pages of late
    spent: str = ""  # the kind that is used up: the run is paused for that
    used: Cost = NOTHING  # when it was

    @property
    def set_aside(self) -> Cost:
        return sum((share.reserved for share in self.shares.values()), NOTHING)


Verdict = Literal["granted", "alone", "wait", "spent"]  # alone: all that is left, for one page


class Answer(msgspec.Struct, frozen=True):
    verdict: Verdict
    ledger: Ledger


def without_expired(ledger: Ledger, now: int) -> Ledger:
    """Without the shares of workers that have not been heard of: what they had in progress is lost."""
    gone = {name: share for name, share in ledger.shares.items() if share.until <= now}
    if not gone:
        return ledger
    kept = {name: share for name, share in ledger.shares.items() if name not in gone}
    lost = sum((share.at_risk for share in gone.values()), ledger.lost)
    return msgspec.structs.replace(ledger, shares=kept, lost=lost)


def page_share(largest: Cost) -> Cost:
    """What is set aside for one page; of a kind of which nothing is known, nothing."""
    return Cost(*(MARGIN * amount for amount in largest.amounts))


def ask_for_share(
    ledger: Ledger, used: Cost, worker: str, mine: Share, wanted: Collection[str], pages: int, places: int = 1
) -> Answer:
    """What a worker that wants to start so many pages gets, beside what its pages in progress have.

    No pages: it has to wait for those that it has.

    used: what has been settled, read after the ledger. mine: what its pages in progress have. wanted: the kinds that
    the next page may use. places: pages that it works on at once.
    """
    others = {name: share for name, share in ledger.shares.items() if name != worker}
    largest = _largest(ledger, [*others.values(), mine])
    ledger = msgspec.structs.replace(ledger, largest=largest)
    mine = _covered(mine, largest)
    held = sum((_covered(share, largest).reserved for share in others.values()), mine.reserved)
    left = ledger.limits - used - ledger.lost - held
    kinds = [kind for kind in limited_kinds(ledger.limits) if kind in wanted]
    verdict, extra = _decide(left, largest, kinds, pages, is_alone=not any(held.amounts))
    share = msgspec.structs.replace(
        mine, reserved=mine.reserved + extra, at_risk=_at_risk(mine.reserved, extra, page_share(largest), places)
    )
    spent = (
        next((kind for kind in kinds if left.get(kind) < max(1, largest.get(kind))), "") if verdict == "spent" else ""
    )
    return Answer(
        verdict,
        msgspec.structs.replace(
            ledger, shares={**others, worker: share}, spent=spent, used=used + ledger.lost if spent else NOTHING
        ),
    )


def _decide(left: Cost, largest: Cost, kinds: Iterable[str], pages: int, *, is_alone: bool) -> tuple[Verdict, Cost]:
    """What may be added to a share. is_alone: no page of the run is in progress anywhere."""
    kinds, share = list(kinds), page_share(largest)
    if pages < 1:
        return "wait", NOTHING
    if all(largest.get(kind) and left.get(kind) >= share.get(kind) for kind in kinds):
        amounts = {
            kind: min(pages * share.get(kind), max(share.get(kind), left.get(kind) // PORTION)) for kind in kinds
        }
        return "granted", Cost(**amounts)
    if not is_alone:
        return "wait", NOTHING
    if all(left.get(kind) >= max(1, largest.get(kind)) for kind in kinds):
        return "alone", left.only(kinds)
    return "spent", NOTHING


def shortfall(begun: Cost, pages: Cost, largest: Cost) -> Cost:
    """What pages in progress may cost beyond what they were given: since they began, others were more expensive."""
    return Cost(
        *(
            max(0, number * most - given)
            for number, most, given in zip(pages.amounts, largest.amounts, begun.amounts, strict=True)
        )
    )


def _covered(share: Share, largest: Cost) -> Share:
    """With enough for its pages in progress, whatever they were given when they began."""
    short = shortfall(share.begun, share.pages, largest)
    if short == NOTHING:
        return share
    return msgspec.structs.replace(share, reserved=share.reserved + short, begun=share.begun + short)


def _at_risk(in_use: Cost, extra: Cost, share: Cost, places: int) -> Cost:
    """Of what a worker has: the pages that it may have in progress when it is killed, each with its share."""
    return Cost(
        *(
            has + more if not each else max(has, min(has + more, places * each))
            for has, more, each in zip(in_use.amounts, extra.amounts, share.amounts, strict=True)
        )
    )


def _largest(ledger: Ledger, shares: Iterable[Share]) -> Cost:
    """Of late; where no worker that is there has had a page of some kind, what was known before."""
    found = NOTHING
    for share in shares:
        found = highest(found, share.largest)
    return Cost(*(now or before for now, before in zip(found.amounts, ledger.largest.amounts, strict=True)))
