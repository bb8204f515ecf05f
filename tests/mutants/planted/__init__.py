"""All planted changes, a file per part of the source."""

from __future__ import annotations

from mutants.planted import (
    config,
    core,
    discard,
    editions,
    extract,
    fetch,
    handlers,
    needs,
    outbox,
    page_limit,
    politeness,
    push,
    queue,
    queue_claim,
    run_counters,
    runs,
    secrets,
    store,
    undo,
    view,
    web,
    worker,
)

_PARTS = (
    worker,
    handlers,
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
    secrets,
    page_limit,
)
MUTANTS = tuple(mutant for part in _PARTS for mutant in part.MUTANTS)
