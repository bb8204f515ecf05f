"""Planted changes of what people are told."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "rates are pages per minute",
        "view/rates.py",
        "return max(0, after - before) / (last - first) if",
        "return 60 * max(0, after - before) / (last - first) if",
        "unit/test_snapshot.py",
    ),
    Mutant(
        "a measured rate is off",
        "view/status.py",
        "rate = max(0, stats.done - before) / SAMPLE_SECONDS",
        "rate = max(0, stats.done - before) / SAMPLE_SECONDS / 60",
        "unit/test_snapshot.py",
    ),
    Mutant(
        "the fleet's rate is off",
        "view/documents.py",
        '"pages_per_second": round(snapshot.rate, 2),',
        '"pages_per_second": round(snapshot.rate * 60, 2),',
        "unit/test_snapshot.py",
    ),
    Mutant(
        "a listed run's rate is off",
        "view/documents.py",
        """        "pages_per_second": round(found.rate, 2),
        "failing_per_second": round(found.failing, 2),""",
        """        "pages_per_second": round(found.rate / 60, 2),
        "failing_per_second": round(found.failing, 2),""",
        "unit/test_snapshot.py",
    ),
    Mutant(
        "a host's old reason is shown after it holds no more",
        "view/formatting.py",
        "    if lane.spacing_override >= 0 or lane.learned <= lane.requested:",
        "    if lane.spacing_override >= 0:",
        "unit/test_host_limits.py",
    ),
    Mutant(
        "a slower pace of another run is not explained",
        "runs/host_limits.py",
        'limit is not None and limit.kind == "other_run"',
        'limit is not None and limit.kind == "override"',
        "unit/test_host_limits.py",
    ),
    Mutant(
        "what was done since the last sample is not in a run's rate",
        "control/recent_rates.py",
        "done, failed, since = done - was.done, failed - was.dead - was.retries, base.at",
        "done, failed, since = 0, 0, base.at",
        "unit/test_recent_rates.py",
    ),
    Mutant(
        "totals fall when a run ends",
        "view/ended_runs.py",
        "        self._accounts.update(zip(just_ended",
        "        dict(zip(just_ended",
        "unit/test_snapshot.py",
    ),
    Mutant(
        "hints leave out the queue",
        "cli/hints.py",
        "_COMMAND.sub(lambda found: found[0] + option, line)",
        "_COMMAND.sub(lambda found: found[0], line)",
        "acceptance/test_cli_listings.py",
    ),
    Mutant(
        "the rate of a run's status is off",
        "view/documents.py",
        '"pages_per_second": found.rate,',
        '"pages_per_second": found.rate and found.rate * 60,',
        "unit/test_snapshot.py",
    ),
    Mutant(
        "the rate of a run that is watched is off",
        "view/documents.py",
        '"pages_per_second": round(found.rate or 0.0, 2),',
        '"pages_per_second": round((found.rate or 0.0) * 60, 2),',
        "unit/test_snapshot.py",
    ),
)
