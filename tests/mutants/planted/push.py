"""Planted changes of pushing work to a named worker."""

from __future__ import annotations

from mutants.mutant import Mutant

_CONTRACT = "conformance/test_contract_push.py"
_SQL = "queue/postgres/schema/0001/17_push.sql"
MUTANTS = (
    Mutant(
        "a probe of a parked lane is pushed",
        "queue/sqlite/push.py",
        "if not lane.parked and lane.open_slots(now) > 0:",
        "if lane.open_slots(now) > 0:",
        _CONTRACT,
    ),
    Mutant(
        "what is pushed costs its run nothing",
        "queue/sqlite/push.py",
        "share = share + 1.0 * ?",
        "share = share + 0.0 * ?",
        _CONTRACT,
    ),
    Mutant(
        "pages that are in progress do not count for a push (PostgreSQL)",
        _SQL,
        "sum(done + dead + discarded + leased - aside)",
        "sum(done + dead + discarded - aside)",
        _CONTRACT,
    ),
    Mutant(
        "needs are not looked at where work is pushed (PostgreSQL)",
        _SQL,
        "n.names <@ p_has",
        "n.names IS NOT NULL",
        _CONTRACT,
    ),
    Mutant(
        "a delayed task is pushed (Redis)",
        "queue/redis/lua/admit.lua",
        "if take and delay <= 0 and ttl > 0 and take(",
        "if take and take(",
        _CONTRACT,
    ),
)
