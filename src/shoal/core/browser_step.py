"""BrowserStep: what a browser does on a page before its content is read; declarative, never code.

A step is one line, an action and what it is about:

    wait .item                          until the selector matches
    wait idle                           until nothing has been loaded for half a second
    scroll                              to the end, as long as the page grows; scroll 5: at most five times
    click .accept
    fill #q = shoes
    press Enter                         on whatever has the focus; press Enter in #q
    more .load-more until .item-100     click it again and again; more .load-more 20: at most so often
    more .load-more 20 until .item-100  whichever comes first
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from shoal.errors import UsageError

Action = Literal["wait", "scroll", "click", "fill", "press", "more"]
ACTIONS: tuple[str, ...] = get_args(Action)
IDLE = "idle"
MAX_STEPS = 50
MAX_SELECTOR = 500
MAX_TEXT = 2_000
MAX_TIMES = 200
DEFAULT_TIMES = 50
_KEYS = {"fill": ("with",), "press": ("in",), "more": ("until", "times"), "scroll": ("times",)}
_KEY = (
    r"(?:[A-Za-z0-9]|Enter|Tab|Escape|Space|Backspace|Delete|Insert|Clear|Home|End|Page(?:Up|Down)|Arrow(?:Left|Right|Up|Down)"
    r"|F(?:[1-9]|1[0-2])|Key[A-Z]|Digit[0-9]|Numpad(?:[0-9]|Add|Subtract|Multiply|Divide|Decimal|Enter)"
    r"|Minus|Equal|Comma|Period|Slash|Backslash|Semicolon|Quote|Backquote|Bracket(?:Left|Right)"
    r"|(?:Shift|Control|Alt|Meta)(?:Left|Right)?|AltGraph|ControlOrMeta"
    r"|CapsLock|NumLock|ScrollLock|ContextMenu|Pause|PrintScreen)"
)
_key_name = re.compile(rf"{_KEY}(\+{_KEY}){{0,3}}").fullmatch
_FORMS = {
    "wait": "wait .item, or wait idle",
    "scroll": "scroll, or scroll 5",
    "click": "click .accept",
    "fill": "fill #q = shoes",
    "press": "press Enter, or press Enter in #q",
    "more": "more .load-more until .item-100, or more .load-more 20",
}


class BrowserStep(msgspec.Struct, frozen=True, omit_defaults=True):
    action: Action
    at: str = ""  # a CSS selector
    text: str = ""  # to fill in, or the key to press
    until: str = ""  # the selector that ends it
    times: int = DEFAULT_TIMES
    only_at: tuple[str, ...] = ()  # its text is a secret: filled in on pages of these hosts alone, and never shown

    def __str__(self) -> str:
        """The step as a line, from which the same step is read."""
        if self.action == "fill":
            return f"fill {self.at} = {'…' if self.only_at else self.text}"
        if self.action == "press":
            return f"press {self.text}" + (f" in {self.at}" if self.at else "")
        times = str(self.times) if self.times != DEFAULT_TIMES else ""
        words = [self.action, self.at, times, f"until {self.until}" if self.until else ""]
        return " ".join(word for word in words if word)


def read_steps(value: object) -> tuple[BrowserStep, ...]:
    """Steps as somebody wrote them: lines, or names and values; raises UsageError that names the step."""
    if isinstance(value, str):
        value = [line for line in value.splitlines() if line.strip()]
    if not isinstance(value, Sequence):
        raise UsageError(f"{value!r} is not a list of steps", hint="write one step per line, such as: wait .item")
    if len(value) > MAX_STEPS:
        raise UsageError(f"there are more than {MAX_STEPS} steps", hint="combine some of them with more or scroll")
    steps = []
    for number, one in enumerate(value, 1):
        try:
            steps.append(read_step(one))
        except UsageError as error:
            raise UsageError(f"step {number}: {error}", hint=error.hint) from None
    return tuple(steps)


def step_lines(value: object) -> tuple[str, ...]:
    """Steps, checked, each as its line: how they are stored and sent."""
    return tuple(map(str, read_steps(value)))


def read_step(value: object) -> BrowserStep:
    if isinstance(value, BrowserStep):
        return value
    if isinstance(value, str):
        return _from_line(value)
    if isinstance(value, Mapping):
        return _from_mapping(value)
    raise UsageError(f"{value!r} is not a step", hint=f"known are: {', '.join(ACTIONS)}")


def _from_line(line: str) -> BrowserStep:
    action, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if action == "fill":
        at, equals, text = f"{rest} ".partition(" = ")  # nothing after it: the field is emptied
        if not equals:
            raise _problem(action, "it does not say with what")
        return _step(action, at=at, text=text.strip())
    if action == "press":
        key, _, at = rest.partition(" in ")
        return _step(action, at=at, text=key)
    if action in ("more", "scroll"):
        rest, _, until = rest.partition(" until ")
        at, _, last = f" {rest}".rpartition(" ")
        if last.isdecimal():
            return _step(action, at=at, until=until, times=int(last))
        return _step(action, at=rest, until=until)
    return _step(action, at=rest)


def _from_mapping(given: Mapping[Any, Any]) -> BrowserStep:
    named = [name for name in given if name in ACTIONS]
    if len(named) != 1:
        raise UsageError("a step has one action", hint=f"known are: {', '.join(ACTIONS)}")
    action: str = named[0]
    for name in given:
        if name != action and name not in _KEYS.get(action, ()):
            raise _problem(action, f"{name!r} is not known")
    what, until, times = given[action], given.get("until", ""), given.get("times", DEFAULT_TIMES)
    if action == "scroll":
        return _step(action, times=times if what is None or isinstance(what, bool) else what)
    if action == "press":
        return _step(action, at=given.get("in", ""), text=what)
    return _step(action, at=what, text=given.get("with", ""), until=until, times=times)


def _step(action: str, *, at: Any = "", text: Any = "", until: Any = "", times: Any = DEFAULT_TIMES) -> BrowserStep:
    """The step, if all of it is what it should be."""
    if action not in ACTIONS:
        raise UsageError(f"{action[:50]!r} is not an action", hint=f"known are: {', '.join(ACTIONS)}")
    if not all(isinstance(one, str) for one in (at, text, until)):
        raise _problem(action, "it is not text")
    at, until = at.strip(), until.strip()
    for selector in (at, until):
        if len(selector) > MAX_SELECTOR or any(char < " " for char in selector):
            raise _problem(action, "the selector is too long or has odd characters")
    if len(text) > MAX_TEXT:
        raise _problem(action, f"its text has more than {MAX_TEXT:,} characters")
    if not isinstance(times, int) or isinstance(times, bool) or not 1 <= times <= MAX_TIMES:
        raise _problem(action, f"how often must be from 1 to {MAX_TIMES}")
    if action in ("wait", "click", "fill", "more") and not at:
        raise _problem(action, "it has no selector")
    if action == "scroll" and at:
        raise _problem(action, f"{at!r} is not a number")
    if action == "press" and not _key_name(text):
        raise _problem(action, f"{text[:50]!r} is not the name of a key")
    return BrowserStep(action, at, text, until, times)  # type: ignore[arg-type]


def _problem(action: str, what: str) -> UsageError:
    return UsageError(f"{action}: {what}", hint=f"write {_FORMS[action]}")
