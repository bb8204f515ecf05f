"""Planted changes of values and decisions."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "one try too many", "core/retry.py", "if earlier >= retries or", "if earlier > retries or", "unit/test_retry.py"
    ),
    Mutant(
        "a mixture of causes is tried for ever",
        "core/retry.py",
        "_counted_failures(failures) >= MAX_RETRIES",
        "_counted_failures(failures) >= 10 * MAX_RETRIES",
        "unit/test_retry.py",
    ),
    Mutant(
        "what the server asked for is ignored",
        "core/retry.py",
        "return max(wait, min(after or 0.0, MAX_RETRY_DELAY), 0.0)",
        "return max(wait, 0.0)",
        "unit/test_retry.py",
    ),
    Mutant(
        "a server may make us wait for days",
        "core/retry.py",
        "min(after or 0.0, MAX_RETRY_DELAY)",
        "(after or 0.0)",
        "unit/test_retry.py",
    ),
    Mutant(
        "delays do not grow",
        "core/retry.py",
        "doubled = 2.0 ** min(earlier, 30)",
        "doubled = 1.0",
        "unit/test_retry.py",
    ),
    Mutant(
        "a person's delay is cut short",
        "core/retry.py",
        "* (1.0 + jitter / 4)",
        "* (1.0 - jitter / 4)",
        "unit/test_retry.py",
    ),
    Mutant(
        "what is not a task's fault counts against it",
        "core/retry.py",
        "if rule.retries < inf and not rule.is_free)",
        "if rule)",
        "unit/test_retry.py",
    ),
    Mutant(
        "handlers are taken for handler",
        "core/retry.py",
        'return length == len(cause) or cause[length] == "."',
        'return length >= 0 or cause[length] == "."',
        "unit/test_retry.py",
    ),
    Mutant(
        "a final cause is tried again if all are",
        "core/retry.py",
        'return limits.get("*", default) if default else default',
        'return limits.get("*", default)',
        "unit/test_retry.py",
    ),
    Mutant(
        "failures of other classes are counted",
        "core/retry.py",
        "if _rule_for(known)[0] == group)",
        "if known)",
        "unit/test_retry.py",
    ),
    Mutant(
        "501 is tried again",
        "core/retry.py",
        '"http.501": RetryRule(0),',
        '"http.501": RetryRule(3),',
        "unit/test_retry.py",
    ),
    Mutant(
        "the longer of two TTLs wins",
        "core/route.py",
        "task.ttl > float(self.ttl)",
        "task.ttl < float(self.ttl)",
        "unit/test_routes.py",
    ),
    Mutant(
        "a rule's session makes another task of a page",
        "core/route.py",
        "rule_session=session,",
        "session=session,",
        "unit/test_routes.py",
    ),
    Mutant(
        "a rule that is never reached is taken",
        "core/routes.py",
        'if one.kind == "host" or one.matches(last.text):',
        'if one.kind == "host":',
        "unit/test_routes.py",
    ),
)
