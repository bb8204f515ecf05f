"""TemplateProblem: one thing that is wrong with a template, and the error that tells all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

import msgspec

from shoal.errors import UsageError


class TemplateProblem(msgspec.Struct, frozen=True):
    line: int  # both from 1; 0 where a template was not read from text
    column: int
    where: str  # "pages[0].fields.price"
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}" if self.line else ""
        head = ": ".join(part for part in (place, self.where, self.message) if part)
        return f"{head} (try: {self.hint})" if self.hint else head


class TemplateError(UsageError):
    """A template cannot be used; `problems` has every reason found, in the order of the file."""

    def __init__(self, source: str, problems: Iterable[TemplateProblem]) -> None:
        self.source = source
        self.problems = tuple(sorted(problems, key=lambda one: (one.line, one.column)))
        many = len(self.problems)
        head = f"{source} has {many} problems" if many != 1 else f"{source} has a problem"
        hint = "fix that and run it again" if many == 1 else "fix them and run it again"
        super().__init__("\n  ".join([f"{head}:", *map(str, self.problems)]), hint=hint)


def suggest(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelled word: the nearest known one, or all of them."""
    known = list(known)
    close = get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else "known are: " + ", ".join(known)
