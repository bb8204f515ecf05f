"""Planted changes of what tasks need and workers have."""

from __future__ import annotations

from mutants.mutant import Mutant

_CONTRACT = "conformance/test_contract_needs.py"
MUTANTS = (
    Mutant(
        "one capability of several will do",
        "queue/sqlite/needs.py",
        "if has.issuperset(needs)]",
        "if not needs or has & set(needs)]",
        _CONTRACT,
    ),
    Mutant(
        "what waits with needs is counted once for all",
        "queue/sqlite/needs.py",
        '"UPDATE run_needs SET ready = ready + ? WHERE run = ? AND needs = ?"',
        '"UPDATE run_needs SET ready = ready + max(0, ?) WHERE run = ? AND needs = ?"',
        _CONTRACT,
    ),
    Mutant(
        "in a lane what has no needs comes first",
        "queue/sqlite/claim.py",
        "rows.sort(key=lambda row: (row[3], row[4], row[0]))",
        "rows.sort(key=lambda row: (row[17] > 0, row[3], row[4], row[0]))",
        _CONTRACT,
    ),
    Mutant(
        "a worker with half of what is needed will do",
        "runs/missing_capabilities.py",
        "has.issuperset(one.names)",
        "has.intersection(one.names)",
        "unit/test_needs.py",
    ),
    Mutant(
        "names of capabilities are whatever they are",
        "core/capability.py",
        "_NAME.fullmatch(name) is None",
        "_NAME.match(name) is None",
        "unit/test_needs.py",
    ),
    Mutant(
        "workers forget what they have",
        "worker/claimer.py",
        "capabilities=plan.capabilities,",
        "capabilities=(),",
        "acceptance/test_capabilities.py",
    ),
)
