"""Reading template files: what is right with them, and everything that is wrong with them at once."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest

from shoal.config.settings import SETTINGS
from shoal.errors import UsageError
from shoal.extract.template import Template, TemplateError, from_fields, parse, summary
from shoal.extract.template.document import MAX_NODES, UnreadableDocument, compose
from shoal.extract.template.model import FieldSpec, Selector

EXAMPLES = Path(__file__).parents[2] / "examples"
HEAD = "name: x\n"


def problems(text: str, **options: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(TemplateError) as caught:
        parse(dedent(text), **options)
    return [(one.where, one.message, one.hint) for one in caught.value.problems]


def only(text: str, **options: Any) -> tuple[str, str, str]:
    (one,) = problems(text, **options)
    return one


def field_of(spec: str) -> FieldSpec:
    (kind,) = parse(f"{HEAD}fields:\n  f: {spec}\n").pages
    return kind.fields["f"]


@pytest.mark.parametrize(
    "path", sorted(set(EXAMPLES.glob("*.yaml")) - {EXAMPLES / "cluster.yaml"}), ids=lambda path: path.name
)
def test_examples_are_in_order_and_survive_json(path: Path) -> None:
    template = parse(path.read_text("utf-8"), settings=SETTINGS)
    again = msgspec.json.decode(msgspec.json.encode(template), type=Template)
    assert again == template and again.version == template.version


def test_the_version_depends_on_what_a_template_does_and_not_on_how_it_is_written() -> None:
    one = parse("name: x\nfields: {a: h1, b: {css: p}}  # a comment\n")
    same = parse("fields:\n  a: 'h1'\n  b: p\nname: x")
    other = parse("name: x\nfields: {a: h1, b: h2}")
    assert one.version == same.version != other.version


def test_routes_of_a_template_are_a_setting_and_what_is_wrong_is_said_with_the_rule() -> None:
    body = "fields: {a: h1}\n"
    rules = "routes:\n  - /a/* ttl=5m\n  - {match: '*', priority: 2}\n"
    assert parse(HEAD + body + rules).settings == {"routes": ["/a/* ttl=5m", {"match": "*", "priority": 2}]}
    bad = "routes:\n  - /a/* ttl=5m\n  - /a/b ttl=1\n  - x.example ttl=0\n"
    assert [where for where, *_ in problems(HEAD + body + bad)] == ["routes[1]", "routes[2]"]
    assert "never reached" in problems(HEAD + body + bad)[0][1]
    assert only(f"{HEAD}{body}routes: fast")[:2] == ("routes", "routes is a list of rules")
    assert only(f"{HEAD}{body}routes: ['* ttl=1']\nsettings: {{routes: ['* ttl=2']}}")[1] == "settings has routes, too"


def test_a_rule_to_follow_has_a_ttl_and_a_way_to_acknowledge() -> None:
    (kind,) = parse(f"{HEAD}follow: {{css: a, ttl: 30m, ack: auto}}").pages
    assert (kind.follow[0].ttl, kind.follow[0].ack, kind.follow[0].priority) == (1800.0, "auto", None)
    assert only(f"{HEAD}follow: {{css: a, ttl: 0}}")[:2] == ("follow.ttl", "0 is not understood")
    assert only(f"{HEAD}follow: {{css: a, ack: maybe}}")[:2] == ("follow.ack", "'maybe' is not understood")


def test_a_template_of_one_page_kind_needs_no_list_of_pages() -> None:
    short = parse("name: x\neach: .quote\nfields: {text: .text}\npaging: .next a")
    long = parse("name: x\npages:\n  - each: .quote\n    fields: {text: .text}\n    paging: {next: .next a}")
    assert short == long


@pytest.mark.parametrize(
    ("spec", "at", "kind"),
    [
        ("h1::text", Selector("css", "h1::text"), "text"),
        ("css:h1", Selector("css", "h1"), "text"),
        ("a:hover", Selector("css", "a:hover"), "text"),
        ("'xpath://h1'", Selector("xpath", "//h1"), "text"),
        (r"re:SB-\d+", Selector("re", r"SB-\d+"), "text"),
        ("json:items[0].name", Selector("json", "items[0].name"), "any"),
        ("data:[0].sku", Selector("data", "[0].sku"), "any"),
        ("meta:category", Selector("meta", "category"), "any"),
        ("value:shop", Selector("value", "shop"), "any"),
        ("page:url", Selector("page", "url"), "any"),
        ("'@url'", Selector("page", "url"), "any"),
        ("{value: 5}", Selector("value", 5), "any"),
        ("{css: .p, type: number}", Selector("css", ".p"), "number"),
        ("no", Selector("css", "no"), "text"),
    ],
)
def test_a_field_is_found_where_its_short_form_says(spec: str, at: Selector, kind: str) -> None:
    field = field_of(spec)
    assert (field.at, field.type) == (at, kind)


def test_names_that_yaml_takes_for_something_else_stay_names() -> None:
    (kind,) = parse(f"{HEAD}fields:\n  no: h1\n  1: h2\n  null: h3\n  2020-01-01: h4\n").pages
    assert list(kind.fields) == ["no", "1", "null", "2020-01-01"]


def test_inside_json_and_xpath_the_short_form_is_of_that_language() -> None:
    (kind,) = parse(f"{HEAD}each: json:items\nfields: {{a: name, b: page:url, c: {{css: h1, from: page}}}}").pages
    assert [field.at.language for field in kind.fields.values()] == ["json", "page", "css"]
    (kind,) = parse(f"{HEAD}each: xpath://li\nfields: {{a: ./a/@href, b: '@href'}}").pages
    assert [field.at.language for field in kind.fields.values()] == ["xpath", "xpath"]


def test_follow_takes_selectors_patterns_and_rules() -> None:
    (kind,) = parse(
        HEAD + "follow: [.next a, /catalogue/*, 'https://x.example/*', {match: /a, priority: 2, max: 3}, 'xpath://a']"
    ).pages
    one, two, three, four, five = kind.follow
    assert one.at == Selector("css", ".next a") and five.at == Selector("xpath", "//a")
    assert (two.at, two.match, three.match) == (None, ("/catalogue/*",), ("https://x.example/*",))
    assert (four.match, four.priority, four.max) == (("/a",), 2, 3)
    assert parse(HEAD + "follow: true").pages[0].usual
    (kind,) = parse(HEAD + "follow: [.next a, true]").pages
    assert kind.usual and [rule.at for rule in kind.follow] == [Selector("css", ".next a")]
    assert not parse(HEAD + "follow: [.next a, 'true', false]").pages[0].usual


def test_settings_are_kept_under_their_names_and_checked_by_the_caller() -> None:
    assert parse(HEAD + "fields: {a: b}\nsettings: {max-pages: 5, rate: 2}").settings == {"max_pages": 5, "rate": 2}
    text = HEAD + "fields: {a: b}\nsettings:\n  rat: 2\n"
    assert only(text, settings=SETTINGS) == ("settings.rat", "there is no setting 'rat'", "did you mean rate?")

    def check(name: str, value: object) -> None:
        raise UsageError("not that", hint="another")

    where, message, hint = only(HEAD + "fields: {a: b}\nsettings: {rate: x}", check_setting=check)
    assert (where, message, hint) == ("settings.rate", "not that", "another")


def test_every_problem_is_told_at_once_with_its_place() -> None:
    with pytest.raises(TemplateError) as caught:
        parse("name: x\npages:\n  - macth: /a\n    fields:\n      price: {css: .p, type: nummber}\n      t: a[")
    found = [(one.line, one.column, one.where) for one in caught.value.problems]
    assert found == [(3, 5, "pages[0].macth"), (5, 30, "pages[0].fields.price.type"), (6, 10, "pages[0].fields.t")]
    said = str(caught.value).splitlines()
    assert said[0] == "template.yaml has 3 problems:"
    assert said[2].strip() == (
        "line 5, column 30: pages[0].fields.price.type: 'nummber' is not a type (try: did you mean number?)"
    )
    assert caught.value.exit_code == 2 and isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("text", "where", "message", "hint"),
    [
        ("", "", "the file is empty", "name:"),
        ("[a]", "", "a template is a mapping", "name: …"),
        ("fields: {a: b}", "name", "needs a name", "name: books"),
        ("name: Books!\nfields: {a: b}", "name", "'Books!' cannot be the name", "letters"),
        ("name: x", "pages", "it extracts nothing", "fields"),
        ("name: x\npages: []", "pages", "it extracts nothing", "fields"),
        ("name: x\npages: {a: b}", "pages", "pages is a list", "dash"),
        ("name: x\npages: [{match: /a}]", "pages[0]", "neither fields nor links", "follow: true"),
        ("name: x\npages: [{fields: {a: b}}]\nfields: {a: b}", "fields", "belongs to one of the pages", "move"),
        ("name: x\nstart: example.com\nfields: {a: b}", "start", "http", "in full"),
        ("name: x\nstart: [http://a.example/, 'http://']\nfields: {a: b}", "start[1]", "'http://'", "in full"),
        ("name: x\nhosts: a/b\nfields: {a: b}", "hosts", "is not a host name", "example.com"),
        ("name: x\nmatch: catalogue\nfields: {a: b}", "match", "paths begin with /", "/catalogue"),
        ("name: x\nfields: []", "fields", "not a list", "name: …"),
        ("name: x\nfields: {a: #main\n}", "fields.a", "it is empty", "#"),
        ("name: x\nfields: {a: [b]}", "fields.a", "one text is expected", "single"),
        ("name: x\nfields: {a: {type: text}}", "fields.a", "does not say where", "css:"),
        ("name: x\nfields: {a: {css:b}}", "fields.a.css:b", "has no 'css:b'", "a space after the colon"),
        ("name: x\nfields: {a: {css: b, requird: true}}", "fields.a.requird", "has no", "did you mean required?"),
        ("name: x\nfields: {a: {css: b, required: 5}}", "fields.a.required", "true or false", "true"),
        ("name: x\nfields: {a: {css: b, xpath: c}}", "fields.a.xpath", "two places", "keep one"),
        ("name: x\nfields: {a: {css: b, type: int}}", "fields.a.type", "'int' is not a type", "integer"),
        ("name: x\nfields: {a: {css: '/b'}}", "fields.a.css", "cannot understand the CSS", "xpath:"),
        ("name: x\nfields: {a: 'xpath://b['}", "fields.a", "cannot understand the XPath", "XPath 1.0"),
        ("name: x\nfields: {a: 'xpath:nope(//a)'}", "fields.a", "cannot understand the XPath", "XPath 1.0"),
        ("name: x\nfields: {a: 're:('}", "fields.a", "regular expression", "re"),
        ("name: x\nfields: {a: {css: b, re: '['}}", "fields.a.re", "regular expression", "re"),
        ("name: x\nfields: {a: 'json:a['}", "fields.a", "JMESPath", "items"),
        ("name: x\nfields: {a: {css: b, json: 'a['}}", "fields.a.json", "JMESPath", "items"),
        ("name: x\nfields: {a: page:ttle}", "fields.a", "a page has no 'ttle'", "title"),
        ("name: x\nfields: {a: 'css:'}", "fields.a", "nothing follows css:", "look for"),
        ("name: x\nfields: {a: {css: b, default: no}}", "fields.a.default", "YAML may read no", "quotes"),
        ("name: x\nfields: {a: {css: b, default: 5}}", "fields.a.default", "'5' is not text", "quotes"),
        ("name: x\nfields: {a: {css: b, type: integer, default: x}}", "fields.a.default", "whole number", "fits"),
        ("name: x\nfields: {a: {css: b, type: date, default: soon}}", "fields.a.default", "a date", "fits"),
        ("name: x\nfields: {a: {css: b, list: true, default: x}}", "fields.a.default", "a list", ""),
        ("name: x\nfields: {a: {css: b, required: true, default: x}}", "fields.a.default", "never used", "keep one"),
        ("name: x\nfields: {a: {css: b, type: text, fields: {c: d}}}", "fields.a", "no type, re or json", "fields"),
        ("name: x\nfields: {a: {re: b, fields: {c: d}}}", "fields.a.fields", "no elements", "css:"),
        ("name: x\neach: .b\nfields: {a: 'xpath:./c'}", "fields.a", "xpath cannot look inside what css", "from: page"),
        ("name: x\neach: .b\nfields: {a: 'json:c'}", "fields.a", "cannot look inside an element", "css: and json:"),
        ("name: x\neach: .b\nfollow: .a", "each", "each without fields", "fields"),
        ("name: x\neach: meta:b\nfields: {a: b}", "each", "finds no elements", "selector"),
        ("name: x\nfollow: //a/@href", "follow", "cannot understand the CSS", "xpath:"),
        ("name: x\nfollow: [{priority: 1}]", "follow[0]", "does not say which links", "css:"),
        ("name: x\nfollow: [{css: a, priority: high}]", "follow[0].priority", "whole number", "-1000"),
        ("name: x\nfollow: [{css: a, max: 0}]", "follow[0].max", "whole number", "from 1"),
        ("name: x\nfollow: []", "follow", "the list is empty", "leave it out"),
        ("name: x\npaging: {max: 3}", "paging.next", "next page", ".next a"),
        ("name: x\npages: [{follow: a}, {match: /b, follow: a}]", "pages[1]", "no page comes here", "to the end"),
        (
            "name: x\npages: [{match: /a, kind: k, follow: a}, {match: /b, kind: k, follow: a}]",
            "pages[1].kind",
            "is called 'k' already",
            "of its own",
        ),
        ("name: x\nfields:\n  a: b\n  a: c\n", "fields.a", "is here twice, first in line 3", "keep one"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_a_hint(text: str, where: str, message: str, hint: str) -> None:
    found, said, help_ = only(text)
    assert found == where
    assert message in said
    assert hint in help_


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a:\n\t- b", 2, 1, "a tab"),
        ("a: @url", 1, 4, "@ cannot begin"),
        ("a: %x", 1, 4, "cannot begin with this character"),
        ("a: b: c", 1, 5, "a second ': '"),
        ("a: [b", 1, 4, "a bracket is not closed"),
        ('a: "b', 1, 4, "a quote is not closed"),
        ("a: *.html", 1, 5, "meaning of their own"),
        ("a: *x", 1, 4, "nothing is called &x"),
        ("a: > b", 1, 6, "begin a block of text"),
        ("a: [href]::text", 1, 10, "text follows"),
        ('a: "\\d"', 1, 6, "in double quotes"),
        ("a:\n  b: 1\n c: 2", 3, 2, "the indentation"),
        ("a: \x01", 1, 4, "U+0001"),
        ("a: 1\n---\nb: 2", 2, 1, "a second document"),
        ("a: &a [*a]", 1, 8, "part of itself"),
        ("- " * 100 + "a", 1, 83, "nested more than 40 deep"),
    ],
)
def test_what_is_not_yaml_is_told_in_words(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(UnreadableDocument) as caught:
        compose(text)
    problem = caught.value.problem
    assert (problem.line, problem.column) == (line, column)
    assert message in problem.message


def test_a_bomb_of_aliases_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(UnreadableDocument, match=f"{MAX_NODES:,} parts"):
        compose("\n".join(lines))


def test_a_large_file_is_refused_unread() -> None:
    with pytest.raises(TemplateError, match="larger than 1 MB"):
        parse("a: " + "x" * 1_000_001)


def test_anchors_and_merged_mappings_are_understood() -> None:
    (kind,) = parse(
        dedent("""
        name: x
        fields:
          a: &number {css: .a, type: number, required: true}
          b: {<<: *number, css: .b}
          c: *number
        """)
    ).pages
    assert [(f.at.what, f.type, f.required) for f in kind.fields.values()] == [
        (".a", "number", True),
        (".b", "number", True),
        (".a", "number", True),
    ]


def test_tags_build_nothing() -> None:
    (kind,) = parse("name: x\nfields: {a: !!python/name:os.system h1}").pages
    assert kind.fields["a"].at == Selector("css", "h1")


def test_fields_of_a_command_line_have_types_and_lists() -> None:
    template = from_fields(
        "x", {"title": "h1", "price:number": ".p", "tags[]": ".t", "n[]:integer": "re:\\d+", "m:price[]": ".m"}
    )
    fields = template.pages[0].fields
    assert list(fields) == ["url", "title", "price", "tags", "n", "m"]
    assert [(f.type, f.list) for f in fields.values()] == [
        ("any", False),
        ("text", False),
        ("number", False),
        ("text", True),
        ("integer", True),
        ("price", True),
    ]


@pytest.mark.parametrize(
    ("fields", "where", "message", "hint"),
    [
        ({"a": ""}, "a", "does not say where", "a=h1::text"),
        ({"a:int": "h1"}, "a", "'int' is not a type", "integer"),
        ({"": "h1"}, "", "cannot be the name", "-f"),
        ({"a[": "h1"}, "a[", "cannot be the name", "-f"),
        ({"a": "h1["}, "a", "CSS selector", "browsers"),
    ],
)
def test_wrong_fields_of_a_command_line_are_told(fields: dict[str, str], where: str, message: str, hint: str) -> None:
    with pytest.raises(TemplateError) as caught:
        from_fields("x", fields)
    (problem,) = caught.value.problems
    assert problem.where == where and message in problem.message and hint in problem.hint
    assert "line 0" not in str(caught.value)


def test_templates_for_lists_make_one_record_a_page_and_follow_nothing() -> None:
    for template in (summary(), from_fields("x", {"a": "h1"})):
        (kind,) = template.pages
        assert kind.match == ("*",) and not kind.each and not kind.follow and not kind.paging
        assert next(iter(kind.fields)) == "url"
