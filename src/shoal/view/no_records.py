"""Says why a run that fetched pages found nothing on them, and what to try next."""

from __future__ import annotations

import shlex

from shoal.core.url import lane_of
from shoal.fetch.guard import looks_private
from shoal.runs.no_records import NoRecords
from shoal.view.formatting import clean, count

MAX_PATTERNS = 6


def describe_no_records(found: NoRecords) -> list[str]:
    """Sentences, from the most likely reason to the next command."""
    lines = [f"No records: {_pages(found.pages)} fetched and {_links(found)} found, but nothing was extracted."]
    if found.unhandled:
        of = f" of {count(found.links)}" if found.links >= found.unhandled else ""
        matches = "matches" if found.unhandled == 1 else "match"
        lines.append(f"  {count(found.unhandled)}{of} {_word(found.unhandled, 'link')} {matches} no handler, such as")
        lines += [f"    {clean(url)}" for url in found.examples]
        if found.patterns:
            more = " …" if len(found.patterns) > MAX_PATTERNS else ""
            lines.append(f"  handlers are for {clean(' '.join(found.patterns[:MAX_PATTERNS]))}{more}")
    lines += [f"  {clean(selector)} found nothing on {count(pages, 'page')}" for selector, pages in found.selectors]
    if not found.links and not found.selectors:
        lines.append("  the pages have no links: perhaps the site is filled in by scripts, which shoal does not run")
    if found.page:
        lines.append(shell_hint(found.page))
    return lines


def shell_hint(page: str) -> str:
    return f"Next: {shell_command(page)}    try selectors on a page"


def shell_command(page: str) -> str:
    private = " --allow-private" if looks_private(lane_of(page)) else ""
    return f"shoal shell {shlex.quote(clean(page))}{private}"


def _pages(number: int) -> str:
    return f"{count(number, 'page')} {'was' if number == 1 else 'were'}"


def _links(found: NoRecords) -> str:
    return count(found.links, "link") if found.links else "no links to follow"


def _word(number: int, word: str) -> str:
    return word if number == 1 else f"{word}s"
