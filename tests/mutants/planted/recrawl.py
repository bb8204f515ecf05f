"""Planted changes of recrawls: what is taken as unchanged."""

from __future__ import annotations

from mutants.mutant import Mutant

TESTS = "unit/test_recrawl.py"

MUTANTS = (
    Mutant(
        "a handler's own requests are not part of what its page gives",
        "worker/task/page_fetch.py",
        "attempt.has_fetched_more = True",
        "attempt.has_fetched_more = False",
        TESTS,
    ),
    Mutant(
        "other code takes what the code before it found",
        "worker/task/recrawl.py",
        "head.reusable and head.rules == self._rules_of(task)",
        "head.reusable",
        TESTS,
    ),
    Mutant(
        "a page that failed once is forgotten",
        "worker/task/recrawl.py",
        'if outcome.result == "dead" and outcome.cause not in GONE_CAUSES:',
        'if outcome.result == "never":',
        "conformance/test_recrawl.py",
    ),
    Mutant(
        "validators go along with every request of a redirect",
        "worker/task/recrawl.py",
        "request.url != former.head.url or not former.validators",
        "not former.validators",
        TESTS,
    ),
    Mutant(
        "a page behind a login is the same by its bytes",
        "core/page_memory.py",
        "return not former.personal and former.url == url",
        "return former.url == url",
        "unit/test_page_memory.py",
    ),
    Mutant(
        "a day ends everywhere when it ends in London",
        "core/page_memory.py",
        "_LATEST_ZONE = timedelta(hours=12)",
        "_LATEST_ZONE = timedelta(hours=0)",
        "unit/test_page_memory.py",
    ),
    Mutant(
        "outcomes are settled before what their pages were is saved",
        "worker/context.py",
        "            await self.page_states.flush()",
        "            pass",
        TESTS,
    ),
    Mutant(
        "what a page limit cut off counts as gone",
        "view/changes.py",
        "return not run.max_pages or not (await queue.stats_of([run.id]))[0].cancelled",
        "return True",
        TESTS,
    ),
)
