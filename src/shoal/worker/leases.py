"""Leases: what this worker holds of the queue, and until when it may trust that."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.core.task import Claim, LeasedTask

TRUSTED_SHARE = 2 / 3  # of a lease: whoever could not renew it by then stops, so that nobody works in vain


class HeldLease:
    __slots__ = ("confirmed_at", "is_given_up", "number", "started", "unsettled")

    def __init__(self, number: int, tasks: Iterable[int], confirmed_at: float) -> None:
        self.number = number
        self.unsettled = set(tasks)  # not settled yet
        self.started: set[int] = set()  # of those, the ones a death of this worker is charged to
        self.confirmed_at = confirmed_at
        self.is_given_up = False


class Leases:
    """Written by the event loop; the heartbeat thread only takes copies, which are single steps."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._held: dict[int, HeldLease] = {}

    def __len__(self) -> int:
        return sum(len(lease.unsettled) for lease in list(self._held.values()))

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(self._held)

    def add(self, claim: Claim, sent: float) -> None:
        """Trusted from the moment the claim was sent: the store's clock began after it."""
        tasks: dict[int, list[int]] = {}
        for task in claim.tasks:  # those that a broker delivers together may be of several leases
            tasks.setdefault(task.lease, []).append(task.id)
        for number, ids in tasks.items():
            if (held := self._held.get(number)) is not None:
                held.unsettled.update(ids)
            else:
                self._held[number] = HeldLease(number, ids, sent)

    def start(self, task: LeasedTask, now: float) -> bool:
        """False if the task is no longer ours, or may well not be: we stood still for a whole lease."""
        lease = self._held.get(task.lease)
        if lease is None or task.id not in lease.unsettled or now - lease.confirmed_at > self.seconds:
            return False
        if task.ack == "manual":  # one that comes once at most is charged to nobody
            lease.started.add(task.id)
        return True

    def undo_start(self, task: LeasedTask) -> None:
        """It waits again, and nothing of it has happened."""
        if (lease := self._held.get(task.lease)) is not None:
            lease.started.discard(task.id)

    def remove_task(self, task: int, number: int) -> None:
        lease = self._held.get(number)
        if lease is None:
            return
        lease.unsettled.discard(task)
        lease.started.discard(task)
        if not lease.unsettled:
            del self._held[number]

    def holds(self, task: int, number: int) -> bool:
        lease = self._held.get(number)
        return lease is not None and task in lease.unsettled

    def drop_leases(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._held.pop(number, None)

    def drop_tasks(self, tasks: Iterable[int]) -> None:
        """Tasks that need not be finished, whatever lease they belong to."""
        dropped = frozenset(tasks)
        for lease in list(self._held.values()):
            for task in dropped & lease.unsettled:
                self.remove_task(task, lease.number)

    def started_tasks(self) -> dict[int, tuple[int, ...]]:
        """For the heartbeat: every lease with what was started of it."""
        return {lease.number: tuple(lease.started) for lease in list(self._held.values())}

    def confirm(self, numbers: Iterable[int], sent: float) -> None:
        for number in numbers:
            lease = self._held.get(number)
            if lease is not None:
                lease.confirmed_at = sent

    def give_up_unconfirmed(self, now: float) -> frozenset[int]:
        """Leases not renewed for two thirds of their time, each named once."""
        limit = now - self.seconds * TRUSTED_SHARE
        old = [lease for lease in self._held.values() if lease.confirmed_at < limit and not lease.is_given_up]
        for lease in old:
            lease.is_given_up = True
        return frozenset(lease.number for lease in old)
