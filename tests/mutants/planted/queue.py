"""Planted changes of the queue contract's backends."""

from __future__ import annotations

from mutants.mutant import Mutant

_SEEN_SETS = "conformance/test_contract_seen_sets.py"

MUTANTS = (
    Mutant(
        "what was settled is not on the disk when that is answered (PostgreSQL)",
        "queue/postgres/schema/0001/05_settle.sql",
        "PERFORM pg_logical_emit_message(true, 'shoal', '');  -- a commit",
        "PERFORM pg_current_xact_id();  -- a commit",
        "conformance/test_postgres.py::test_a_server_killed_amid_work_loses_and_duplicates_nothing",
    ),
    Mutant(
        "records leave before they are on the disk (PostgreSQL)",
        "queue/postgres/inspect.py",
        "        await engine.flush()",
        "        pass",
        "conformance/test_postgres.py::test_records_leave_the_queue_only_when_they_are_on_the_disk",
    ),
    Mutant(
        "adding fails where somebody else adds the same (PostgreSQL)",
        "queue/postgres/schema/0001/03_admit.sql",
        "EXCEPTION WHEN unique_violation THEN",
        "EXCEPTION WHEN division_by_zero THEN",
        "conformance/test_postgres_waits.py",
    ),
    Mutant(
        "the usual of a task is missing (PostgreSQL)",
        "queue/postgres/schema/0001/03_admit.sql",
        "coalesce(u.delay, 0) AS delay",
        "u.delay",
        "conformance/test_contract_add.py",
    ),
    Mutant(
        "requests beside the first leave by the usual way",
        "worker/task/attempt.py",
        "return same_owner_lane(lane_of(url), self.lane)",
        "return lane_of(url)",
        "unit/test_task_exchange.py",
    ),
    Mutant(
        "any text is the name of an exit",
        "core/lane.py",
        "return _EXIT.fullmatch(name) is not None",
        "return bool(name)",
        "unit/test_lane_name.py",
    ),
    Mutant(
        "a seen-set forgets an hour too soon",
        "core/seen_set.py",
        "(now - created_at - seen_for) // HOUR)",
        "(now - created_at - seen_for) // HOUR + 1)",
        "unit/test_seen_set.py",
    ),
    Mutant(
        "a set that was made anew after clearing remembers for ever",
        "queue/sqlite/seen_sets.py",
        "open_set(db, now, name, seen_for / SECOND)",
        "open_set(db, now, name, 0.0)",
        _SEEN_SETS,
    ),
    Mutant(
        "a pass over a seen-set never ends",
        "queue/sqlite/seen_sets.py",
        "(gone, upto if last else None, last is not None, now, id)",
        "(gone, upto, last is not None, now, id)",
        _SEEN_SETS,
    ),
    Mutant(
        "a duplicate within one call is seen by its own run",
        "queue/sqlite/admit.py",
        '"seen" if name in seen else "known"',
        '"seen" if seen else "known"',
        _SEEN_SETS,
    ),
)
