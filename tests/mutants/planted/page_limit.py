"""Planted changes of another page limit for a run."""

from __future__ import annotations

from mutants.mutant import Mutant

_CONTRACT = "conformance/test_contract_page_limit.py"
MUTANTS = (
    Mutant(
        "a limit that is reached already is taken",
        "queue/sqlite/page_limit.py",
        "if 0 < max_pages <= ended:",
        "if 0 < max_pages < ended:",
        _CONTRACT,
    ),
    Mutant(
        "what a page limit left is kept for an hour",
        "queue/sqlite/runs.py",
        'LIMIT_SECONDS if state == "finished" else UNDO_SECONDS',
        "UNDO_SECONDS",
        _CONTRACT,
    ),
    Mutant(
        "another run of the same key does not matter (Redis)",
        "queue/redis/lua/set_max_pages.lua",
        "  elseif other then\n    return {'replaced', other.name}\n",
        "",
        _CONTRACT,
    ),
    Mutant(
        "a page limit changes nothing of a run that has ended",
        "runs/identity.py",
        "not (go_on and _asks_for_more(run, new))",
        "not go_on",
        "unit/test_run_identity.py",
    ),
    Mutant(
        "a lower page limit sets an ended run to work",
        "runs/identity.py",
        "(not new.max_pages or new.max_pages > run.max_pages)",
        "True",
        "unit/test_run_identity.py",
    ),
)
