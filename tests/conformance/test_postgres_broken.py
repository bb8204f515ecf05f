"""Every rule has been seen to fail: PostgreSQL queues that break one, and the state machine that finds it."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import postgres

from conformance.machine import drive
from conformance.world import Clock
from shoal.core.task import digest
from shoal.errors import Act
from shoal.queue.base import Queue
from shoal.queue.postgres import PostgresQueue, migrate

FAILURES = (AssertionError, Act)


# A word of the schema, and what somebody might have written in its place.
SLIPS = {
    "answers are not fenced": ("l.id = o.task AND l.lease + 0 = o.lease", "l.id = o.task"),
    "what was dropped counts as ready in its lane": (
        "h.ready - c.n\n    FROM (SELECT lane, count(*) AS n FROM gone WHERE NOT late",
        "h.ready - 0 * c.n\n    FROM (SELECT lane, count(*) AS n FROM gone WHERE NOT late",
    ),
    "places stay taken": ("AS n FROM unnest(p_lanes) u(lane)", "* 0 AS n FROM unnest(p_lanes) u(lane)"),
}


@pytest.mark.faults  # of the suite itself: it takes minutes
@pytest.mark.parametrize("slip", SLIPS)
def test_the_state_machine_catches_a_slip_in_the_schema(slip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = SLIPS[slip]
    scripts = migrate.scripts()
    assert any(right in script for script in scripts), "the schema no longer says so"
    monkeypatch.setattr(migrate, "scripts", lambda: [script.replace(right, wrong) for script in scripts])

    async def open_broken(folder: Path, clock: Clock) -> Queue:
        namespace = "b" + digest(slip + str(folder)).hex()
        return await PostgresQueue.open(postgres.shared().url(namespace, connections=1), clock=clock)

    with pytest.raises(FAILURES):
        drive(lambda: open_broken, examples=300, steps=40, shrink=False)
