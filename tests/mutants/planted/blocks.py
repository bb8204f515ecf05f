"""Mistakes in telling block pages from pages."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "one sign alone is enough to ask again",
        "core/host_blocks.py",
        "signs.bit_count() >= 2 and is_undecided",
        "signs.bit_count() >= 1 and is_undecided",
        "unit/test_host_blocks.py",
    ),
    Mutant(
        "what is at its URLs stays a block",
        "core/block_page.py",
        "return sum(one.again for one in self.sightings) >= CONTENT_AFTER",
        "return False",
        "unit/test_host_blocks.py",
    ),
    Mutant(
        "a site that was made anew is blocked for good",
        "core/host_blocks.py",
        "if is_odd and self._is_new_site(key, seen, look):",
        "if False:",
        "unit/test_host_blocks.py",
    ),
    Mutant(
        "a probe that finds a block page releases its host",
        "worker/task/block_check.py",
        "attempt.lane_changes = tuple(change for change in attempt.lane_changes if change.park_for != 0.0)",
        "pass",
        "unit/test_block_check.py",
    ),
    Mutant(
        "block pages use up the retries of a task",
        "core/retry.py",
        "RetryRule(5, base=60.0, max_delay=900.0, is_free=True)",
        "RetryRule(5, base=60.0, max_delay=900.0)",
        "unit/test_block_check.py",
    ),
)
