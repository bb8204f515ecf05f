"""Planted changes of budgets."""

from __future__ import annotations

from mutants.mutant import Mutant

_UNIT = "unit/test_budget_decisions.py"
_RULES, _PART = "core/budget.py", "worker/task/run_budget.py"
MUTANTS = (
    Mutant("a page begins though others hold what is left", _RULES, "- ledger.lost - held", "- ledger.lost", _UNIT),
    Mutant("what was lost with a worker is free again", _RULES, "- ledger.lost - held", "- held", _UNIT),
    Mutant("the first pages do not wait for one", _RULES, "    if not is_alone:\n", "    if False:\n", _UNIT),
    Mutant("what is left is given to one at once", _RULES, "left.get(kind) // PORTION", "left.get(kind)", _UNIT),
    Mutant(
        "a kind that the page cannot use holds it up",
        _RULES,
        "kinds = [kind for kind in limited_kinds(ledger.limits) if kind in wanted]",
        "kinds = list(limited_kinds(ledger.limits))",
        _UNIT,
    ),
    Mutant(
        "behind a cheap first page all others begin at once",
        _PART,
        "self._at_once = max(1, responses_of(counters) + counters.get(HITS, 0))",
        "self._at_once = 1000",
        _UNIT,
    ),
    Mutant(
        "pages in progress cost what was known when they began",
        _RULES,
        "    if short == NOTHING:\n",
        "    if True:\n",
        _UNIT,
    ),
    Mutant("a page that is settled keeps its share free", _PART, "        self._gone += cost\n", "", _UNIT),
    Mutant(
        "an outcome that was not taken costs nothing",
        _PART,
        "            self._lost += cost\n",
        "            pass\n",
        _UNIT,
    ),
    Mutant(
        "a spent budget is raised and stays spent",
        "queue/budget_ledger.py",
        'limits=limits, spent="")',
        "limits=limits)",
        _UNIT,
    ),
    Mutant(
        "bytes by exits are no bytes by proxies",
        "core/cost.py",
        "return (0,) if way.partition(\".\")[2] == DIRECT else (0, 1)",
        "return (0,)",
        _UNIT,
    ),
)  # fmt: skip
