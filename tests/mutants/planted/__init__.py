"""All planted changes, a file per part of the source."""

from __future__ import annotations

from mutants.planted import (
    config,
    core,
    discard,
    editions,
    extract,
    fetch,
    needs,
    outbox,
    page_limit,
    politeness,
    push,
    queue,
    queue_claim,
    run_counters,
    runs,
    store,
    undo,
    view,
    web,
    worker,
)

_PARTS = (
    worker,
    runs,
    politeness,
    store,
    extract,
    fetch,
    config,
    core,
    view,
    web,
    queue_claim,
    editions,
    needs,
    queue,
    undo,
    outbox,
    run_counters,
    push,
    discard,
    page_limit,
)
MUTANTS = tuple(mutant for part in _PARTS for mutant in part.MUTANTS)
