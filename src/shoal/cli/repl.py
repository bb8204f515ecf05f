"""The prompt of `shoal shell`: selectors and other questions about one page, answered as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shoal.cli.console import clean, count, paint, print_line, print_table, size, terminal_width, truncate
from shoal.core.url import host_of
from shoal.errors import UsageError
from shoal.extract.page import Page
from shoal.extract.template import from_fields
from shoal.extract.template.extractors import FieldExtractor
from shoal.extract.template.model import Selector, SelectorLanguage
from shoal.extract.template.page_view import PAGE_VALUES, PageView
from shoal.extract.template.selectors import finder, markup, selector_problem

MAX_SHOWN = 10
MAX_LIST_VALUES = 3  # values of a list
MAX_TEXT = 4_000

EXAMPLES = {"css": "css h1::text", "xpath": "xpath //h1/text()", "re": "re [0-9]+"}
HELP = """\
  h1::text           what a CSS selector finds; ::attr(x) is an attribute
  css SELECTOR       the same, if it begins like a command (css table td)
  xpath EXPRESSION   what an XPath finds
  re PATTERN         what a regular expression finds in the source of the page
  json PATH          what a JMESPath finds in a page that is JSON
  data PATH          the same in the JSON that is in the scripts of a page
  -f NAME:TYPE=…     a field as `shoal run -f` takes it, read as its type
  links [SELECTOR]   the URLs of links
  table [SELECTOR]   the rows of a table
  html [SELECTOR]    the source              text     its readable text
  page               about the response       headers  of the response
  fetch URL          another page            quit     or Ctrl-D"""


class Repl:
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
            "page": lambda _: self.show_summary(),
            "headers": lambda _: self._headers(),
            "fetch": self._fetch_page,
            "help": lambda _: print_line(HELP),
            "?": lambda _: print_line(HELP),
            "-f": lambda what: self.show_fields(_parse_field(what)),
        }
        self._set_page(page)

    def execute(self, text: str) -> None:
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

    def show_summary(self) -> None:
        """The answer in a few lines."""
        page, response = self.page, self.page.response
        for url in response.redirects:
            print_line(f"{clean(url)} →")
        print_line(paint(clean(page.url), "bold"))
        took = f" in {response.seconds:.2f} s" if response.seconds else ""
        print_line(f"  status  {page.status}, {size(len(page.body))}{took}")
        print_line(f"  type    {clean(page.content_type or 'unknown')}, {page.encoding}")
        title = PAGE_VALUES["title"](self._view)
        if title:
            print_line(f"  title   {truncate(clean(title), terminal_width() - 10)}")
        links = page.links()
        here = sum(host_of(url) == host_of(page.url) for url in links)
        print_line(f"  links   {count(here)} to this host, {count(len(links) - here)} elsewhere")

    def show_fields(self, given: dict[str, str]) -> None:
        """What each field finds and what a record would hold, as a table."""
        template = from_fields("shell", given)
        rows = []
        for name, field in template.pages[0].fields.items():
            if name == "url" and "url" not in (key.partition(":")[0] for key in given):
                continue
            self._view.notes.clear()
            found = finder(field.at, None)(self._view, None)
            value = FieldExtractor(name, field, None).read(self._view, None)
            said = [text for _, text in self._view.notes] or [_format_value(value)]
            rows.append((name, field.type + (" list" if field.list else ""), count(len(found)), said[0]))
        print_table(("field", "type", "found", "value"), rows, right="found")

    def _set_page(self, page: Page) -> None:
        self.page = page
        self._view = PageView(page)

    def _find(self, language: SelectorLanguage, what: str) -> None:
        if not what:
            raise UsageError(f"{language} needs something to look for", hint=EXAMPLES[language])
        at = Selector(language, what)
        if bad := selector_problem(at, None):
            raise UsageError(bad[0], hint=bad[1])
        self._list([_as_text(item) for item in finder(at, None)(self._view, None)])

    def _list(self, texts: Sequence[str]) -> None:
        print_line(f"{count(len(texts))} found" if texts else "nothing found")
        room = len(str(min(len(texts), MAX_SHOWN)))
        for number, text in enumerate(texts[:MAX_SHOWN], 1):
            shown = truncate(clean(text.strip()), terminal_width() - room - 5)
            print_line(f"  {paint(str(number).rjust(room), 'dim')}  {shown}")
        if len(texts) > MAX_SHOWN:
            print_line(f"  … and {count(len(texts) - MAX_SHOWN)} more")

    def _links(self, selector: str) -> None:
        self._list(self.page.links(selector or None))

    def _table(self, selector: str) -> None:
        rows: list[dict[str, Any]] = self.page.table(selector or "table")
        if not rows:
            print_line("no table found")
            return
        heads = list(dict.fromkeys(name for row in rows for name in row))
        print_table(heads, [[_format_value(row.get(name)) for name in heads] for row in rows[:MAX_SHOWN]])
        if len(rows) > MAX_SHOWN:
            print_line(f"… and {count(len(rows) - MAX_SHOWN, 'more row')}")

    def _text(self, _: str) -> None:
        text = PAGE_VALUES["text"](self._view) or ""
        for part in text[:MAX_TEXT].splitlines():
            print_line(clean(part))
        if len(text) > MAX_TEXT:
            print_line(f"… and {count(len(text) - MAX_TEXT, 'more character')}")

    def _html(self, selector: str) -> None:
        if not selector:
            text = self.page.text
        else:
            text = "\n".join(self.page.css(selector).getall()[:MAX_SHOWN]) or "nothing found"
        for part in text[:MAX_TEXT].splitlines():
            print_line(clean(part))
        if len(text) > MAX_TEXT:
            print_line(f"… and {count(len(text) - MAX_TEXT, 'more character')}")

    def _headers(self) -> None:
        for name, value in self.page.response.headers:
            print_line(f"  {clean(name)}: {clean(value)}")

    def _fetch_page(self, given: str) -> None:
        if not given:
            raise UsageError("fetch needs a URL", hint="fetch /next, or fetch https://…")
        (url, *_) = self.page.links(given) if given.startswith(("/", "?", ".")) else [given]
        self._set_page(self._fetch(url))
        self.show_summary()


def _parse_field(text: str) -> dict[str, str]:
    from shoal.cli.run import read_fields

    return read_fields([text.strip("'\"")])


def _as_text(item: Any) -> str:
    return item if isinstance(item, str) else markup(item)


def _format_value(value: Any) -> str:
    if value is None or value == []:
        return "(nothing)"
    if isinstance(value, list):
        return " · ".join(map(_format_value, value[:MAX_LIST_VALUES])) + (
            " · …" if len(value) > MAX_LIST_VALUES else ""
        )
    return " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())


def read_lines(ask: Callable[[], str]) -> Iterator[str]:
    """What somebody types, until the end of it."""
    while True:
        try:
            text = ask()
        except EOFError:
            return
        if text.strip().lower() in ("quit", "exit", "q"):
            return
        yield text
