"""Planted changes of the outbox and of what drains it."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "an entry that nobody understands keeps its run from ever being finished",
        "queue/follow_ups.py",
        "                finished.append(entry.seq)\n",
        "",
        "unit/test_follow_ups.py",
    ),
    Mutant(
        "follow-ups that their queue refused are acknowledged",
        "queue/follow_ups.py",
        "            return False\n",
        "            return True\n",
        "unit/test_follow_ups.py",
    ),
    Mutant(
        "two handlers that ask for the same are taken for one",
        "worker/task/follow_up_tasks.py",
        "_encode([parent, task.type, task.payload])",
        "_encode([task.type, task.payload])",
        "unit/test_follow_ups.py",
    ),
    Mutant(
        "what a killed worker left in the outbox stays there",
        "control/maintenance.py",
        'PeriodicJob("outbox", OUTBOX_INTERVAL, FollowUps(queue).drain)',
        'PeriodicJob("outbox", OUTBOX_INTERVAL, queue.now)',
        "unit/test_follow_ups.py",
    ),
    Mutant(
        "an entry that is acknowledged twice in one call counts twice",
        "queue/sqlite/outbox.py",
        "SELECT DISTINCT value FROM",
        "SELECT value FROM",
        "conformance/test_contract_outbox.py::test_what_is_acknowledged_is_gone_and_repeating_it_is_harmless[sqlite]",
    ),
    Mutant(
        "a run whose outbox is full is said to have work to hand out",
        "queue/sqlite/stats.py",
        'known["outbox"] < MAX_OUTBOX_PER_RUN',
        'known["outbox"] <= MAX_OUTBOX_PER_RUN',
        "conformance/test_contract_outbox.py::"
        "test_a_run_whose_outbox_is_full_waits_and_goes_on_when_it_is_drained[sqlite]",
    ),
)
