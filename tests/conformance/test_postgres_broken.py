"""Every rule has been seen to fail: PostgreSQL queues that break one, and the state machine that finds it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_clock import FakeClock
from servers import postgres

from conformance.state_machine import drive
from shoal.core.task import digest
from shoal.errors import ActionRequired
from shoal.queue.base import Queue
from shoal.queue.postgres import PostgresQueue, migrate

FAILURES = (AssertionError, ActionRequired)


# A word of the schema, and what somebody might have written in its place.
SLIPS = {
    "answers are not fenced": ("l.id = o.task AND l.lease + 0 = o.lease", "l.id = o.task"),
    "what was dropped counts as ready in its lane": (
        "h.ready - c.n\n    FROM (SELECT lane, needs, count(*) AS n FROM gone WHERE NOT late",
        "h.ready - 0 * c.n\n    FROM (SELECT lane, needs, count(*) AS n FROM gone WHERE NOT late",
    ),
    "what comes once at most comes again": ("g.auto_ack OR g.lost", "g.lost"),
    "what is not to be tried again is": ("WHEN l.auto_ack AND o.result = 1 THEN 2 ", ""),
    "one capability of several will do": ("s.names <@ p_has", "s.names && p_has"),
    "needs are forgotten when a lease ends": (
        "request_options, auto_ack, needs, past",
        "request_options, auto_ack, 0, past",
    ),
    "what another run has had is taken again": ("WHERE t.run IS NULL AND NOT g.revisit", "WHERE false"),
    "what was in progress comes back without its place": (
        "in_flight = l.in_flight + c.n FROM (SELECT lane, count(*) AS n FROM held",
        "in_flight = l.in_flight FROM (SELECT lane, count(*) AS n FROM held",
    ),
    "lanes are not told what is back": ("SET ready = ready + kept, kept = 0", "SET kept = 0"),
    "what a batch counts is added though not all was taken": (
        "IF cardinality(v_dropped) > 0 OR 1 = ANY (v_verdicts) OR 2 = ANY (v_verdicts) THEN",
        "IF cardinality(v_dropped) > 0 THEN",
    ),
    "entries of failures are kept": ("AND p_results[(value ->> 0)::integer] = 0 AND NOT", "AND NOT"),
    "acknowledged entries stay counted": ("p_outbox => -v.n", "p_outbox => -0 * v.n"),
    "places stay taken": ("AS n FROM unnest(p_lanes) u(lane)", "* 0 AS n FROM unnest(p_lanes) u(lane)"),
}


@pytest.mark.faults  # of the suite itself: it takes minutes
@pytest.mark.parametrize("slip", SLIPS)
def test_the_state_machine_catches_a_slip_in_the_schema(slip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = SLIPS[slip]
    scripts = migrate.scripts()
    assert any(right in script for script in scripts), "the schema no longer says so"
    monkeypatch.setattr(migrate, "scripts", lambda: [script.replace(right, wrong) for script in scripts])

    async def open_broken(folder: Path, clock: FakeClock) -> Queue:
        namespace = "b" + digest(slip + str(folder)).hex()
        return await PostgresQueue.open(postgres.shared().url(namespace, connections=1), clock=clock)

    with pytest.raises(FAILURES):
        drive(lambda: open_broken, examples=300, steps=40, shrink=False)
