"""Planted changes of plans."""

from __future__ import annotations

from mutants.mutant import Mutant

TESTS = "unit/test_plan.py"
MUTANTS = (
    Mutant(
        "retries take no time at hosts",
        "core/plan.py",
        "at_pace = group.pages * request.host_spacing * attempts",
        "at_pace = group.pages * request.host_spacing",
        TESTS,
    ),
    Mutant(
        "what a host may have in progress does not slow it down",
        "core/sizing.py",
        "return max(spacing, (latency + OVERHEAD_SECONDS) / in_flight if in_flight else 0.0)",
        "return spacing",
        TESTS,
    ),
    Mutant(
        "pages between two sizes of hosts are left out",
        "core/host_sizes.py",
        "share = self.urls / total",
        "share = 1.0",
        TESTS,
    ),
    Mutant(
        "a plan for a deadline has one machine too few",
        "core/plan.py",
        "low, high = (low, middle) if is_in_time(middle) else (middle, high)",
        "low, high = (low, middle) if is_in_time(middle + 1) else (middle, high)",
        TESTS,
    ),
    Mutant(
        "machines that are given back are paid for",
        "core/plan.py",
        "scaled=scaled * prices.machine_hour,",
        "scaled=hours * prices.machine_hour,",
        TESTS,
    ),
    Mutant(
        "a larger crawl keeps the largest host of the run it is like",
        "commands/plan.py",
        'round(seen["largest_host"] / seen["urls"] * given["urls"])',
        'round(seen["largest_host"])',
        TESTS,
    ),
)
