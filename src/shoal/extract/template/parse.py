"""Parse: the text of a template file as a Template, with everything that is wrong with it at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast, get_args

from shoal.core.route import VALUES
from shoal.core.routes import route_lines
from shoal.core.sitemap import unmarked
from shoal.errors import UsageError
from shoal.extract.fetching import PageFetching, page_fetching
from shoal.extract.scraper import Scraper, sitemap_start
from shoal.extract.template import selectors
from shoal.extract.template.converters import CONVERTERS, TYPE_NAMES
from shoal.extract.template.document import Node, UnreadableDocument, compose
from shoal.extract.template.extractors import element_language
from shoal.extract.template.model import (
    FieldSpec,
    FieldType,
    FollowSpec,
    PageKind,
    PagingSpec,
    Selector,
    SelectorLanguage,
    Template,
)
from shoal.extract.template.node_reader import NodeReader, join
from shoal.extract.template.problem import TemplateError, suggest
from shoal.extract.template.shorthand import LANGUAGES, is_url_pattern, parse_selector

_KIND = ("match", "kind", "each", "fields", "follow", "paging", "fetch", "steps", "exit")
_TOP = ("name", "start", "sitemap", "hosts", "settings", "routes", "pages", *_KIND)
_FIELD = (*LANGUAGES, "type", "list", "required", "default", "from", "fields")
_LINKS = ("css", "xpath", "re", "json", "data")
_FOLLOW = (*_LINKS, "match", "each", "priority", "ttl", "ack", "max", "meta")
_SOURCES = ("css", "xpath", "data", "meta", "row", "page", "value", "json", "re")  # the first that is given is it
_TYPES: tuple[str, ...] = get_args(FieldType)
# Languages whose values have a type of their own.
_TYPED_LANGUAGES = ("json", "data", "meta", "row", "value", "page")
_kind_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}").fullmatch

CheckSetting = Callable[[str, object], object]  # raises Usage for a value that cannot be


def parse(
    text: str,
    *,
    source: str = "template.yaml",
    settings: Collection[str] = (),
    check_setting: CheckSetting | None = None,
) -> Template:
    """Read a template; raises TemplateError with every problem found.

    settings: the names that may be set, where they are to be checked; check_setting: how values are.
    """
    try:
        root, problems = compose(text)
    except UnreadableDocument as error:
        raise TemplateError(source, [error.problem]) from error
    reader = _TemplateParser(settings, check_setting)
    reader.problems += problems
    template = reader.template(root)
    if reader.problems or template is None:
        raise TemplateError(source, reader.problems)
    return template


class _TemplateParser(NodeReader):
    def __init__(self, settings: Collection[str], check_setting: CheckSetting | None) -> None:
        super().__init__()
        self._settings = settings
        self._check_setting = check_setting

    def template(self, root: Node) -> Template | None:
        if root.empty:
            self.add_problem(root, "", "the file is empty", "name:, start: and fields: are a beginning")
            return None
        given = self.keys(root, "", _TOP, "a template")
        if root.kind != "mapping":
            return None
        if "name" not in given:
            self.add_problem(root, "name", "a template needs a name", "name: books")
        name = self.text(given.get("name"), "name")
        start = self.texts(given.get("start"), "start")
        hosts = self.texts(given.get("hosts"), "hosts")
        if name:
            self._check(given["name"], "name", lambda: Scraper(name))
        if "hosts" in given:
            self._check(given["hosts"], "hosts", lambda: Scraper("hosts", hosts=hosts))
        for at, url in enumerate(start):
            self._check_start(given["start"], at, url)
        if "sitemap" in given:
            start += self._sitemaps(given["sitemap"], start)
        return Template(
            name=name,
            start=start,
            hosts=hosts,
            settings=self._settings_of(given.get("settings")) | self._routes(given),
            pages=self._pages(root, given),
        )

    def _check(self, node: Node, where: str, make: Callable[[], object]) -> None:
        try:
            make()
        except UsageError as error:
            self.add_problem(node, where, str(error), error.hint)

    def _check_start(self, node: Node, at: int, url: str) -> None:
        from shoal.core.url import canonical

        if url:
            one, where = (node.items[at], f"start[{at}]") if node.kind == "list" else (node, "start")
            self._check(one, where, lambda: canonical(unmarked(url)))

    def _sitemaps(self, node: Node, start: tuple[str, ...]) -> tuple[str, ...]:
        """Start URLs for sitemap: true, a URL, or several."""
        from shoal.core.url import canonical

        texts = self.texts(node, "sitemap")
        found: list[str] = []

        def check() -> None:
            if any(text.lower() in ("true", "yes", "false", "no") for text in texts):
                found.extend(sitemap_start(texts[0].lower() in ("true", "yes"), start))
            else:
                found.extend(sitemap_start([canonical(text) for text in texts if text], start))

        self._check(node, "sitemap", check)
        return tuple(found)

    def _settings_of(self, node: Node | None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if node is None:
            return found
        for key, where, value in self.names(node, "settings", "settings"):
            name = key.text.replace("-", "_")
            if self._settings and name not in self._settings:
                self.add_problem(key, where, f"there is no setting {key.text!r}", suggest(name, self._settings))
                continue
            found[name] = value.value
            if value.empty:
                self.add_problem(value, where, "it is empty", "give it a value, or leave it out")
            elif self._check_setting is not None:
                check = self._check_setting
                self._check(value, where, lambda: check(name, value.value))  # noqa: B023 - called at once
        return found

    def _routes(self, given: dict[str, Node]) -> dict[str, Any]:
        """The rules of a template: a setting like others, with a key of its own."""
        node = given.get("routes")
        if node is None:
            return {}
        if node.kind != "list":
            self.add_problem(node, "routes", "routes is a list of rules", "- */urgent/* priority=10 ttl=30m")
            return {}
        settings = given.get("settings")
        if settings is not None and settings.kind == "mapping" and "routes" in settings.value:
            self.add_problem(node, "routes", "settings has routes, too", "keep one of them")
        rules = list[Any]()
        for at, item in enumerate(node.items):
            before = len(self.problems)
            self._check(item, f"routes[{at}]", lambda: route_lines([*rules, item.value]))  # noqa: B023 - called at once
            if len(self.problems) == before:
                rules.append(item.value)
        return {"routes": rules}

    def _pages(self, root: Node, given: dict[str, Node]) -> tuple[PageKind, ...]:
        short = [name for name in _KIND if name in given]
        if "pages" not in given:
            if not short:
                self.add_problem(root, "pages", "it extracts nothing", "fields: {title: h1::text}")
                return ()
            return (self._kind(root, "", {name: given[name] for name in short}, 0),)
        for name in short:
            self.add_problem(given[name], name, f"{name} belongs to one of the pages", "move it into pages:")
        pages = given["pages"]
        if pages.kind != "list":
            self.add_problem(pages, "pages", "pages is a list", "begin each with a dash: - match: /…")
            return ()
        kinds = []
        for at, node in enumerate(pages.items):
            where = f"pages[{at}]"
            kinds.append(self._kind(node, where, self.keys(node, where, _KIND, "a page kind"), at))
        if not kinds:
            self.add_problem(pages, "pages", "it extracts nothing", "- fields: {title: h1::text}")
        self._check_kinds(pages, kinds)
        return tuple(kinds)

    def _check_kinds(self, pages: Node, kinds: list[PageKind]) -> None:
        """Kinds of one name, and kinds that no page will ever reach."""
        seen: dict[str, int] = {}
        open_end = -1
        for at, (node, kind) in enumerate(zip(pages.items, kinds, strict=True)):
            if seen.setdefault(kind.kind, at) != at:
                message = f"pages[{seen[kind.kind]}] is called {kind.kind!r} already"
                self.add_problem(node, f"pages[{at}].kind", message, "give each a name of its own")
            if open_end >= 0:
                message = f"no page comes here: pages[{open_end}] takes every page"
                self.add_problem(node, f"pages[{at}]", message, "move that one to the end, or give it a match:")
            elif "*" in kind.match:
                open_end = at

    def _kind(self, node: Node, where: str, given: dict[str, Node], at: int) -> PageKind:
        name = self.text(given.get("kind"), join(where, "kind"), "page" if not at else f"page-{at + 1}")
        if not _kind_name(name):
            self.add_problem(given["kind"], join(where, "kind"), f"{name!r} cannot be a name", "letters, digits, _ -")
        match = tuple(self._patterns(given.get("match"), join(where, "match")))
        each = self._selector(given.get("each"), join(where, "each"), None) if "each" in given else None
        if each is not None and each.language not in ("css", "xpath", "json", "data"):
            self.add_problem(given["each"], join(where, "each"), f"{each.language}: finds no elements", "a selector")
        fields = self._fields(given.get("fields"), join(where, "fields"), each)
        follow, usual = self._follows(given.get("follow"), join(where, "follow"))
        paging = self._paging(given.get("paging"), join(where, "paging"))
        if each is not None and "fields" not in given:
            self.add_problem(given["each"], join(where, "each"), "each without fields extracts nothing", "fields: {…}")
        if not {"fields", "follow", "paging"} & set(given) and node.kind == "mapping":
            hint = "fields: {title: h1::text}, or follow: true"
            self.add_problem(node, where, "it has neither fields nor links to follow", hint)
        return PageKind(name, match or ("*",), each, fields, follow, usual, paging, self._fetching(given, where))

    def _fetching(self, given: dict[str, Node], where: str) -> PageFetching:
        """With what pages of a kind are fetched, and the steps on them."""
        fetch, found = self.text(given.get("fetch"), join(where, "fetch")), PageFetching()
        exit = self.text(given.get("exit"), join(where, "exit"))
        steps = given["steps"].value if "steps" in given else ()

        def read() -> None:
            nonlocal found
            found = page_fetching(fetch, [steps] if isinstance(steps, Mapping) else steps, exit)

        if name := next((name for name in ("exit", "steps", "fetch") if name in given), ""):
            self._check(given[name], join(where, name), read)
        return found

    def _patterns(self, node: Node | None, where: str) -> list[str]:
        patterns = self.texts(node, where)
        for pattern in patterns:
            assert node is not None
            if pattern and pattern[:1] not in "/*" and "://" not in pattern:
                hint = f"/{pattern} for a path from the root, */{pattern} for any ending like it"
                self.add_problem(node, where, f"no URL matches {pattern!r}: paths begin with /", hint)
        return [pattern for pattern in patterns if pattern]

    def _fields(self, node: Node | None, where: str, each: Selector | None) -> dict[str, FieldSpec]:
        if node is None:
            return {}
        context = element_language(each.language) if each else None
        return {key.text: self._field(value, path, context) for key, path, value in self.names(node, where, "fields")}

    def _field(self, node: Node, where: str, context: SelectorLanguage | None) -> FieldSpec:
        if node.kind != "mapping":
            at = self._selector(node, where, context)
            return FieldSpec(at, type="any" if at.language in _TYPED_LANGUAGES else "text")
        before = len(self.problems)
        given = self.keys(node, where, _FIELD, "a field")
        of_page = self.choice(given.get("from"), join(where, "from"), ("page",), "a place to look in")
        context = None if of_page else context
        sources = [name for name in _SOURCES if name in given]
        if not sources and len(self.problems) > before:
            return FieldSpec(Selector("value", None))  # an unknown key may well have been meant for it
        if not sources:
            self.add_problem(node, where, "it does not say where the value is", "css: h1::text")
            return FieldSpec(Selector("value", None))
        at = self._source(given, sources[0], where, context)
        steps = [name for name in sources[1:] if name not in ("json", "re")]
        if steps:
            message = f"{sources[0]} and {steps[0]} are two places for one value"
            self.add_problem(given[steps[0]], join(where, steps[0]), message, "keep one of them")
        kind = self.choice(given.get("type"), join(where, "type"), _TYPES, "a type")
        path = self._step(given, sources, "json", where, selectors.jmespath_problem)
        field = FieldSpec(
            at=at,
            type=cast(FieldType, kind or ("any" if at.language in _TYPED_LANGUAGES or path else "text")),
            re=self._step(given, sources, "re", where, selectors.regex_problem),
            path=path,
            list=self.boolean(given.get("list"), join(where, "list")),
            required=self.boolean(given.get("required"), join(where, "required")),
            default=self.json_value(given["default"], join(where, "default")) if "default" in given else None,
            whole=of_page is not None,
            fields=self._nested_fields(given, where, at),
        )
        self._check_field(node, given, where, field)
        return field

    def _source(self, given: dict[str, Node], name: str, where: str, context: SelectorLanguage | None) -> Selector:
        node, where = given[name], join(where, name)
        if name == "value":
            return Selector("value", self.json_value(node, where))
        return self._checked_selector(
            node, where, Selector(cast(SelectorLanguage, name), self.text(node, where)), context
        )

    def _step(
        self,
        given: dict[str, Node],
        sources: list[str],
        name: str,
        where: str,
        selector_problem: Callable[[str], tuple[str, str] | None],
    ) -> str:
        """A further step from what was found to the value: a JMESPath or a regular expression."""
        if name not in sources[1:]:
            return ""
        text = self.text(given[name], join(where, name))
        if text and (found := selector_problem(text)):
            self.add_problem(given[name], join(where, name), *found)
        return text

    def _nested_fields(self, given: dict[str, Node], where: str, at: Selector) -> dict[str, FieldSpec]:
        if "fields" in given and at.language not in ("css", "xpath", "json", "data", "meta"):
            message = f"{at.language}: finds no elements to look inside"
            self.add_problem(given["fields"], join(where, "fields"), message, "css: or xpath: or json:")
            return {}
        return self._fields(given.get("fields"), join(where, "fields"), at)

    def _check_field(self, node: Node, given: dict[str, Node], where: str, field: FieldSpec) -> None:
        if field.fields and ("type" in given or field.re or field.path):
            self.add_problem(
                node, where, "what has fields of its own has no type, re or json", "give them to its fields"
            )
        if field.required and field.default is not None:
            message = "it is required, so its default is never used"
            self.add_problem(given["default"], join(where, "default"), message, "keep one of the two")
        elif field.default is not None and not _default_fits(field):
            message = f"the default {given['default'].text or 'given'!r} is not {_expected_type(field)}"
            hint = "put it in quotes, or declare a type:" if field.type == "text" else "one that fits the type"
            self.add_problem(given["default"], join(where, "default"), message, hint)

    def _selector(self, node: Node | None, where: str, context: SelectorLanguage | None) -> Selector:
        text = self.text(node, where)
        if node is None or not text:
            return Selector("value", None)
        return self._checked_selector(node, where, parse_selector(text, context or "css"), context)

    def _checked_selector(self, node: Node, where: str, at: Selector, context: SelectorLanguage | None) -> Selector:
        if at.what and (found := selectors.selector_problem(at, context)):
            self.add_problem(node, where, *found)
        elif not at.what:
            self.add_problem(node, where, f"nothing follows {at.language}:", "say what to look for")
        return at

    def _follows(self, node: Node | None, where: str) -> tuple[tuple[FollowSpec, ...], bool]:
        rules = self.several(node, where, self._rule)
        return tuple(rule for rule in rules if isinstance(rule, FollowSpec)), True in rules

    def _rule(self, node: Node, where: str) -> FollowSpec | bool:
        """A rule, or whether to follow what a page without a kind would."""
        if node.kind == "text" and node.text in ("true", "false") and not node.quoted:
            return node.text == "true"
        return self._follow(node, where)

    def _follow(self, node: Node, where: str) -> FollowSpec:
        if node.kind != "mapping":
            text = self.text(node, where)
            if is_url_pattern(text) and not text.startswith("//") and text.partition(":")[0] not in LANGUAGES:
                return FollowSpec(match=(text,))
            return FollowSpec(at=self._selector(node, where, None))
        given = self.keys(node, where, _FOLLOW, "a rule to follow")
        each = self._selector(given["each"], join(where, "each"), None) if "each" in given else None
        context = element_language(each.language) if each else None
        sources = [name for name in _LINKS if name in given]
        for name in sources[1:]:
            self.add_problem(given[name], join(where, name), f"{sources[0]} is given already", "two rules")
        if not sources and "match" not in given and each is None:
            self.add_problem(node, where, "it does not say which links", "css: .next a, or match: /…")
        return FollowSpec(
            at=self._source(given, sources[0], where, context) if sources else None,
            match=tuple(self._patterns(given.get("match"), join(where, "match"))),
            each=each,
            priority=self.integer(given["priority"], join(where, "priority"), least=-1000, most=1000)
            if "priority" in given
            else None,
            max=self.integer(given.get("max"), join(where, "max"), least=1),
            meta=self._fields(given.get("meta"), join(where, "meta"), each),
            ttl=self._route_value("ttl", given, where),
            ack=self._route_value("ack", given, where),
        )

    def _route_value(self, name: str, given: dict[str, Node], where: str) -> Any:
        """What a rule of a route sets, too."""
        if name not in given:
            return None
        read, accepts = VALUES[name]
        try:
            return read(given[name].value)
        except (ValueError, TypeError):
            message = f"{given[name].value!r} is not understood"
            self.add_problem(given[name], join(where, name), message, f"give {accepts}")
            return None

    def _paging(self, node: Node | None, where: str) -> PagingSpec | None:
        if node is None:
            return None
        if node.kind != "mapping":
            return PagingSpec(self._selector(node, where, None))
        given = self.keys(node, where, ("next", "max"), "paging")
        if "next" not in given:
            self.add_problem(node, join(where, "next"), "paging needs to know the next page", "next: .next a")
            return None
        most = self.integer(given.get("max"), join(where, "max"), least=1)
        return PagingSpec(self._selector(given["next"], join(where, "next"), None), most)


def _default_fits(field: FieldSpec) -> bool:
    """Whether a default is of the declared type."""
    default, kind = field.default, field.type
    if field.list:
        return isinstance(default, list)
    if kind in ("integer", "number", "price"):
        whole = isinstance(default, int) if kind == "integer" else isinstance(default, int | float)
        return whole and not isinstance(default, bool)
    if kind in ("boolean", "exists"):
        return isinstance(default, bool)
    if kind in ("any", "json") or field.fields:
        return True
    if not isinstance(default, str):
        return False
    if kind not in ("date", "datetime"):
        return True
    try:
        CONVERTERS[kind](cast(Any, None), default)
    except ValueError:
        return False
    return True


def _expected_type(field: FieldSpec) -> str:
    return "a list" if field.list else TYPE_NAMES[field.type]
