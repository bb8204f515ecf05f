"""Planted changes of the retention of dead letters."""

from __future__ import annotations

from mutants.mutant import Mutant

_CONTRACT = "conformance/test_contract_discard.py"
MUTANTS = (
    Mutant(
        "dead letters go a moment too soon",
        "core/dead_retention.py",
        "return max(asked, MIN_DEAD_RETENTION) if",
        "return asked if",
        _CONTRACT,
    ),
    Mutant(
        "the account forgets that letters were removed",
        "queue/sqlite/dead_letter.py",
        "discarded = discarded + ?1 WHERE",
        "discarded = discarded + 0 * ?1 WHERE",
        _CONTRACT,
    ),
    Mutant(
        "what was removed makes room under the page limit",
        "queue/sqlite/claim.py",
        "done + dead + discarded + leased - aside, name",
        "done + dead + leased - aside, name",
        _CONTRACT,
    ),
    Mutant(
        "what was removed makes room under the page limit (PostgreSQL)",
        "queue/postgres/schema/0001/05_settle.sql",
        "sum(done + dead + discarded - aside) AS used",
        "sum(done + dead - aside) AS used",
        _CONTRACT,
    ),
    Mutant(
        "a letter that was revived keeps its age (Redis)",
        "queue/redis/lua/items.lua",
        "  call('ZREM', P .. 'dead_ages:' .. run.id, task.number)\n",
        "",
        _CONTRACT,
    ),
    Mutant(
        "a run whose letters were removed did not fail",
        "core/stats.py",
        "return self.dead + self.discarded",
        "return self.dead",
        _CONTRACT,
    ),
)
