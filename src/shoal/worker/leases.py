"""Leases: what this worker holds of the queue, and until when it may trust that."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.core.task import Claim, Leased

TRUST = 2 / 3  # of a lease: whoever could not renew it by then stops, so that nobody works in vain


class Lease:
    __slots__ = ("confirmed", "given_up", "left", "number", "started")

    def __init__(self, number: int, tasks: Iterable[int], confirmed: float) -> None:
        self.number = number
        self.left = set(tasks)  # not settled yet
        self.started: set[int] = set()  # of those, the ones a death of this worker is charged to
        self.confirmed = confirmed
        self.given_up = False


class Leases:
    """Written by the event loop; the heart's thread only takes copies, which are single steps."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._held: dict[int, Lease] = {}

    def __len__(self) -> int:
        return sum(len(lease.left) for lease in list(self._held.values()))

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(self._held)

    def take(self, claim: Claim, sent: float) -> None:
        """Trusted from the moment the claim was sent: the store's clock began after it."""
        self._held[claim.lease] = Lease(claim.lease, [task.id for task in claim.tasks], sent)

    def start(self, task: Leased, now: float) -> bool:
        """False if the task is no longer ours, or may well not be: we stood still for a whole lease."""
        lease = self._held.get(task.lease)
        if lease is None or task.id not in lease.left or now - lease.confirmed > self.seconds:
            return False
        lease.started.add(task.id)
        return True

    def settled(self, task: int, number: int) -> None:
        lease = self._held.get(number)
        if lease is None:
            return
        lease.left.discard(task)
        lease.started.discard(task)
        if not lease.left:
            del self._held[number]

    def holds(self, task: int, number: int) -> bool:
        lease = self._held.get(number)
        return lease is not None and task in lease.left

    def lose(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._held.pop(number, None)

    def drop(self, tasks: Iterable[int]) -> None:
        """Tasks that need not be finished, whatever lease they belong to."""
        gone = frozenset(tasks)
        for lease in list(self._held.values()):
            for task in gone & lease.left:
                self.settled(task, lease.number)

    def report(self) -> dict[int, tuple[int, ...]]:
        """For the heartbeat: every lease with what was started of it."""
        return {lease.number: tuple(lease.started) for lease in list(self._held.values())}

    def confirm(self, numbers: Iterable[int], sent: float) -> None:
        for number in numbers:
            lease = self._held.get(number)
            if lease is not None:
                lease.confirmed = sent

    def give_up(self, now: float) -> frozenset[int]:
        """Leases not renewed for two thirds of their time, each named once."""
        limit = now - self.seconds * TRUST
        old = [lease for lease in self._held.values() if lease.confirmed < limit and not lease.given_up]
        for lease in old:
            lease.given_up = True
        return frozenset(lease.number for lease in old)
