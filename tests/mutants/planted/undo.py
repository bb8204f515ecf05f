"""Planted changes of cancelling a run, of taking that back, and of what expires while nobody looks."""

from __future__ import annotations

from mutants.mutant import Mutant

IN_RUNS, IN_UNDO, IN_REAP = (f"conformance/test_contract_{name}.py" for name in ("runs", "undo", "reap"))

MUTANTS = (
    Mutant(
        "what was delayed in a cancelled run is promoted when its time comes, and delayed is below zero",
        "queue/sqlite/claim.py",
        "WHERE r.state IN ('running', 'paused') AND r.delayed > 0 LIMIT ?",
        "LIMIT ?",
        f"{IN_RUNS}::test_nothing_is_delayed_in_a_cancelled_run_whatever_others_do_when_its_time_comes[sqlite]",
    ),
    Mutant(
        "who waits for work is woken by what is only kept",
        "queue/sqlite/claim.py",
        "FROM runs r WHERE r.state = 'running' AND r.delayed > 0",
        "FROM runs r",
        f"{IN_UNDO}::test_a_task_that_waits_for_its_time_comes_then[sqlite]",
    ),
    Mutant(
        "what is in progress comes back without its places in flight",
        "queue/sqlite/runs.py",
        "UPDATE lanes SET in_flight = in_flight + ? WHERE id = ?",
        "UPDATE lanes SET in_flight = in_flight + 0 * ? WHERE id = ?",
        f"{IN_UNDO}::test_a_leased_task_is_still_its_workers[sqlite]",
    ),
    Mutant(
        "a late retry in a cancelled run is lost when that is undone",
        "queue/sqlite/settle.py",
        "return returns and runs.keeps_tasks(",
        "return returns and not runs.keeps_tasks(",
        f"{IN_UNDO}::test_what_came_back_late_waits_again[sqlite-retry-0.0-ready]",
    ),
    Mutant(
        "a cancel is undone after the tasks have gone",
        "queue/sqlite/runs.py",
        "if not keeps_tasks(db, now, run.id):",
        "if not keeps_tasks(db, 0, run.id):",
        f"{IN_UNDO}::test_after_an_hour_it_is_too_late[sqlite]",
    ),
    Mutant(
        "only the first lanes of a run learn that it ended",
        "queue/sqlite/__init__.py",
        "write(runs.set_state, run, action)\n        await self._move_lanes(run, more)",
        "write(runs.set_state, run, action)\n        await self._move_lanes(run, False)",
        f"{IN_UNDO}::test_a_run_of_many_lanes_comes_back_whole[sqlite]",
    ),
    Mutant(
        "a run that was moved elsewhere goes on here, too",
        "runs/undo_cancel.py",
        "if place := await moved_to(queue, run):",
        "if (place := await moved_to(queue, run)) == run.key:",
        "unit/test_undo_cancel.py",
    ),
    Mutant(
        "what expired waits until somebody tidies up",
        "queue/sqlite/facade.py",
        "        if not engine.read(dead_letter.overdue, runs, 1):",
        "        if runs:",
        f"{IN_REAP}::test_what_expired_is_dead_at_the_next_look[sqlite-stats]",
    ),
    Mutant(
        "looking at a cancelled run ends what is only kept",
        "queue/sqlite/dead_letter.py",
        "WHERE r.state IN ('running', 'paused') AND t.state IN (0, 2) LIMIT ?",
        "WHERE t.state IN (0, 2) LIMIT ?",
        f"{IN_REAP}::test_tasks_of_a_cancelled_run_do_not_expire[sqlite]",
    ),
    Mutant(
        "undo is offered for two hours",
        "runs/undo_cancel.py",
        "UNDO_SECONDS * 1_000_000 > now",
        "UNDO_SECONDS * 2_000_000 > now",
        "unit/test_undo_cancel.py",
    ),
)
