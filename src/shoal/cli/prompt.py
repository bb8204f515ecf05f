"""Prompt: selectors and other questions about one page, answered as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shoal.cli.show import clean, count, cut, line, paint, size, table, width
from shoal.core.url import host_of
from shoal.errors import Usage
from shoal.extract.page import Page
from shoal.extract.template import from_fields
from shoal.extract.template.find import finder, markup, trouble
from shoal.extract.template.model import Language, Where
from shoal.extract.template.record import FieldReader
from shoal.extract.template.sight import PAGE_VALUES, Sight

SHOWN = 10
SOME = 3  # values of a list
TEXT_ROOM = 4_000

ASKED = {"css": "css h1::text", "xpath": "xpath //h1/text()", "re": "re [0-9]+"}
HELP = """\
  h1::text           what a CSS selector finds; ::attr(x) is an attribute
  css SELECTOR       the same, where it begins like a command (css table td)
  xpath EXPRESSION   what an XPath finds
  re PATTERN         what a regular expression finds in the source of the page
  json PATH          what a JMESPath finds in a page that is JSON
  data PATH          the same in the JSON that is in the scripts of a page
  -f NAME:TYPE=…     a field as `shoal run -f` takes it, read as its type
  links [SELECTOR]   the addresses of links
  table [SELECTOR]   the rows of a table
  html [SELECTOR]    the source              text     what there is to read
  page               about the answer        headers  all that came with it
  fetch URL          another page            quit     or Ctrl-D"""


class Prompt:
    """Answers one line after the other; `fetch` brings another page."""

    def __init__(self, page: Page, fetch: Callable[[str], Page]) -> None:
        self._fetch = fetch
        self._commands: dict[str, Callable[[str], None]] = {
            "css": lambda what: self._find("css", what),
            "xpath": lambda what: self._find("xpath", what),
            "re": lambda what: self._find("re", what),
            "json": lambda what: self._find("json", what or "@"),
            "data": lambda what: self._find("data", what or "@"),
            "links": self._links,
            "table": self._table,
            "text": self._text,
            "html": self._html,
            "page": lambda _: self.about(),
            "headers": lambda _: self._headers(),
            "fetch": self._go,
            "help": lambda _: line(HELP),
            "?": lambda _: line(HELP),
            "-f": lambda what: self.fields(_one_field(what)),
        }
        self._see(page)

    def obey(self, text: str) -> None:
        """Answer one line; raises Usage and other errors of ours for what cannot be answered."""
        text = text.strip()
        word, _, rest = text.partition(" ")
        if word in self._commands:
            self._commands[word](rest.strip())
        elif text:
            self._find("css", text)

    @property
    def commands(self) -> list[str]:
        return [*self._commands, "quit"]

    def about(self) -> None:
        """The answer in a few lines."""
        page, response = self.page, self.page.response
        for url in response.redirects:
            line(f"{clean(url)} →")
        line(paint(clean(page.url), "bold"))
        took = f" in {response.seconds:.2f} s" if response.seconds else ""
        line(f"  status  {page.status}, {size(len(page.body))}{took}")
        line(f"  type    {clean(page.content_type or 'not said')}, {page.encoding}")
        title = PAGE_VALUES["title"](self._sight)
        if title:
            line(f"  title   {cut(clean(title), width() - 10)}")
        links = page.links()
        here = sum(host_of(url) == host_of(page.url) for url in links)
        line(f"  links   {count(here)} to this host, {count(len(links) - here)} elsewhere")

    def fields(self, given: dict[str, str]) -> None:
        """What each field finds and what a record would hold, as a table."""
        template = from_fields("shell", given)
        rows = []
        for name, field in template.pages[0].fields.items():
            if name == "url" and "url" not in (key.partition(":")[0] for key in given):
                continue
            self._sight.notes.clear()
            found = finder(field.at, None)(self._sight, None)
            value = FieldReader(name, field, None).read(self._sight, None)
            said = [text for _, text in self._sight.notes] or [_shown(value)]
            rows.append((name, field.type + (" list" if field.list else ""), count(len(found)), said[0]))
        table(("field", "type", "found", "value"), rows, right="found")

    def _see(self, page: Page) -> None:
        self.page = page
        self._sight = Sight(page)

    def _find(self, language: Language, what: str) -> None:
        if not what:
            raise Usage(f"{language} takes something to look for", hint=ASKED[language])
        at = Where(language, what)
        if bad := trouble(at, None):
            raise Usage(bad[0], hint=bad[1])
        self._list([_plain(item) for item in finder(at, None)(self._sight, None)])

    def _list(self, texts: Sequence[str]) -> None:
        line(f"{count(len(texts))} found" if texts else "nothing found")
        room = len(str(min(len(texts), SHOWN)))
        for number, text in enumerate(texts[:SHOWN], 1):
            line(f"  {paint(str(number).rjust(room), 'dim')}  {cut(clean(text.strip()), width() - room - 5)}")
        if len(texts) > SHOWN:
            line(f"  … and {count(len(texts) - SHOWN)} more")

    def _links(self, selector: str) -> None:
        self._list(self.page.links(selector or None))

    def _table(self, selector: str) -> None:
        rows: list[dict[str, Any]] = self.page.table(selector or "table")
        if not rows:
            line("no table found")
            return
        heads = list(dict.fromkeys(name for row in rows for name in row))
        table(heads, [[_shown(row.get(name)) for name in heads] for row in rows[:SHOWN]])
        if len(rows) > SHOWN:
            line(f"… and {count(len(rows) - SHOWN, 'more row')}")

    def _text(self, _: str) -> None:
        text = PAGE_VALUES["text"](self._sight) or ""
        for part in text[:TEXT_ROOM].splitlines():
            line(clean(part))
        if len(text) > TEXT_ROOM:
            line(f"… and {count(len(text) - TEXT_ROOM, 'more character')}")

    def _html(self, selector: str) -> None:
        if not selector:
            text = self.page.text
        else:
            text = "\n".join(self.page.css(selector).getall()[:SHOWN]) or "nothing found"
        for part in text[:TEXT_ROOM].splitlines():
            line(clean(part))
        if len(text) > TEXT_ROOM:
            line(f"… and {count(len(text) - TEXT_ROOM, 'more character')}")

    def _headers(self) -> None:
        for name, value in self.page.response.headers:
            line(f"  {clean(name)}: {clean(value)}")

    def _go(self, address: str) -> None:
        if not address:
            raise Usage("fetch takes an address", hint="fetch /next, or fetch https://…")
        (url, *_) = self.page.links(address) if address.startswith(("/", "?", ".")) else [address]
        self._see(self._fetch(url))
        self.about()


def _one_field(text: str) -> dict[str, str]:
    from shoal.cli.run import read_fields

    return read_fields([text.strip("'\"")])


def _plain(item: Any) -> str:
    return item if isinstance(item, str) else markup(item)


def _shown(value: Any) -> str:
    if value is None or value == []:
        return "(nothing)"
    if isinstance(value, list):
        return " · ".join(map(_shown, value[:SOME])) + (" · …" if len(value) > SOME else "")
    return " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())


def lines_of(ask: Callable[[], str]) -> Iterator[str]:
    """What somebody types, until the end of it."""
    while True:
        try:
            text = ask()
        except EOFError:
            return
        if text.strip().lower() in ("quit", "exit", "q"):
            return
        yield text
