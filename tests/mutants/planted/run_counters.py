"""Planted changes of what runs count as their pages are settled."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a field that is empty counts as filled",
        "core/run_counters.py",
        'if kind is None or value == "":',
        "if kind is None:",
        "unit/test_run_counters.py",
    ),
    Mutant(
        "names that a run has no room for are lost",
        "core/run_counters.py",
        "            name = OTHER\n        counters",
        "            continue\n        counters",
        "unit/test_run_counters.py",
    ),
    Mutant(
        "records of pages that failed count as filled",
        "queue/counter_totals.py",
        'with_records = outcome.result == "done" and outcome.task not in dropped',
        "with_records = outcome.task not in dropped",
        "conformance/test_contract_run_counters.py::"
        "test_every_attempt_that_is_taken_counts_and_records_count_with_what_is_done[sqlite]",
    ),
    Mutant(
        "what did not count is counted by name",
        "queue/sqlite/settle.py",
        "all_taken = len(taken) == len(outcomes) and not batch.dropped",
        "all_taken = not batch.dropped",
        "conformance/test_contract_run_counters.py::test_answers_that_do_not_count_count_nothing[sqlite]",
    ),
    Mutant(
        "a proxy's password is counted under",
        "worker/task/page_counters.py",
        'UNNAMED_PROXY if "://" in options.proxy else options.proxy[:MAX_EXIT]',
        "run_context.request_builder._proxy_url(options.proxy)",
        "unit/test_task_pipeline.py",
    ),
    Mutant(
        "processor time is given out twice",
        "worker/context.py",
        "        self._taken_ns += micros * 1000\n",
        "",
        "unit/test_run_counters.py",
    ),
)
