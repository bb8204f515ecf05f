"""Planted changes of sitemaps: how they are read, and what becomes of their entries."""

from __future__ import annotations

from mutants.mutant import Mutant

TESTS = "unit/test_sitemap.py"

MUTANTS = (
    Mutant(
        "entities in a plain entry are taken as they are written",
        "sources/plain_sitemap.py",
        """_TEXT = r"[!-%'-;=-~]\"""",
        """_TEXT = r"[!-;=-~]\"""",
        TESTS,
    ),
    Mutant(
        "what is written in another way is skipped",
        "sources/plain_sitemap.py",
        'self._end(rest) if b"</url" in rest else',
        'self._end(b"") if b"</url" in rest else',
        TESTS,
    ),
    Mutant(
        "all sitemaps of an index are in memory at once",
        "worker/task/sitemap.py",
        "asyncio.Semaphore(AT_ONCE)",
        "asyncio.Semaphore(1_000_000)",
        TESTS,
    ),
    Mutant(
        "indexes lead on for ever",
        "worker/task/sitemap.py",
        "entry.is_sitemap and self._nest >= MAX_NESTING",
        "entry.is_sitemap and self._nest > MAX_NESTING",
        TESTS,
    ),
)
