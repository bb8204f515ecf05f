"""Shorthand: a field or a selector in one line of text, in a template or after -f."""

from __future__ import annotations

from typing import cast, get_args

from shoal.extract.template.model import Selector, SelectorLanguage

LANGUAGES: tuple[str, ...] = get_args(SelectorLanguage)


def parse_selector(text: str, language: SelectorLanguage = "css") -> Selector:
    """`h1::text`, `xpath://h1`, `re:\\d+`, `json:items[0]`, `meta:name`, `row:Name`, `value:x`, `page:url` or `@url`.

    What names no language is in that of the element it is looked for in.
    """
    text = text.strip()
    if text[:1] == "@" and len(text) > 1 and language in ("css", "json"):
        return Selector("page", text[1:])
    word, colon, rest = text.partition(":")
    if colon and word in LANGUAGES and rest[:1] != ":":
        return Selector(cast(SelectorLanguage, word), rest.strip() if word != "value" else rest)
    return Selector(language, text)


def is_url_pattern(text: str) -> bool:
    """Whether a rule to follow is a URL pattern: no selector begins like one."""
    return text[:1] == "/" or "://" in text.partition("[")[0]
