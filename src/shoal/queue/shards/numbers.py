"""Numbers of tasks, leases and entries: what they are on one shard, and what they are for all.

A task has the same number on its shard and for all; only its run differs. So that no two shards give the same
number, the numbers of each shard begin at a multiple of SHARE (run_numbers.py). Leases and entries of the outbox
say in their last bits which shard they are of.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.core.run import TASK_BITS, run_of

SHARD_BITS = 5
SHARE = 1 << (TASK_BITS - SHARD_BITS)  # tasks of a run that each shard has numbers for
_NUMBER = (1 << TASK_BITS) - 1
_SHARD = (1 << SHARD_BITS) - 1


def first_number(shard: int) -> int:
    """The first that a shard gives; what is moved here from another queue has lower ones than the home shard's."""
    return shard * SHARE or SHARE // 2


def born_on(number: int) -> int:
    """The shard that gave a task its number: it may have been moved since."""
    return (number & _NUMBER) // SHARE


def in_run(task: int, run: int) -> int:
    """The id of a task in that run, which is the same run by another number."""
    return run << TASK_BITS | (task & _NUMBER)


def of_run(tasks: Iterable[int], run: int, local: int) -> list[int]:
    """The ids of tasks in that run by its other number; of other runs' tasks, one that nobody has."""
    return [in_run(task if run_of(task) == run else 0, local) for task in tasks]


def tagged(number: int, shard: int) -> int:
    """A lease, or a place in the outbox, of one shard as a number for all."""
    return number << SHARD_BITS | shard if number else 0


def untagged(number: int) -> tuple[int, int]:
    """The shard, and its own number."""
    return number & _SHARD, number >> SHARD_BITS
