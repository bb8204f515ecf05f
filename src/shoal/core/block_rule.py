"""BlockRule: what becomes of a page for which the site has given a block page.

notice        it counts as it is, and people are told
later         its host is left alone for a while, then the page is asked for again
browser       a browser asks for it
exit:NAME     it is asked for by another exit
park          its host gets no requests until a person releases it
off           nothing is looked for
"""

from __future__ import annotations

from typing import Final

from shoal.core import units
from shoal.core.capability import EXIT_PREFIX, MAX_EXIT_NAME
from shoal.core.lane import is_exit_name

NOTICE: Final = "notice"
LATER: Final = "later"
PARK: Final = "park"
OFF: Final = "off"
BY_BROWSER: Final = "browser"
BLOCK_RULES = "notice, later, browser, exit:NAME, park or off"
_WORDS = frozenset({NOTICE, LATER, PARK, OFF, BY_BROWSER})


def block_rule(value: object) -> str:
    """The rule as it is written; ValueError for what is none."""
    if value is False:  # as YAML and TOML read the word
        return OFF
    text = units.text(value)
    name = exit_of_rule(text)
    if text in _WORDS or (name and is_exit_name(name) and len(name) <= MAX_EXIT_NAME):
        return text
    raise ValueError(value)


def exit_of_rule(rule: str) -> str:
    """The exit that it names; empty: none."""
    return rule.removeprefix(EXIT_PREFIX) if rule.startswith(EXIT_PREFIX) else ""
