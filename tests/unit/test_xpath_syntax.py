"""What is wrong with an XPath is found without evaluating it."""

from __future__ import annotations

import importlib

import pytest

from shoal.extract.template import selectors
from shoal.extract.template.model import Selector
from shoal.extract.template.selectors import selector_problem
from shoal.extract.xpath_syntax import unknown_part

etree = importlib.import_module("lxml.etree")

NAMESPACES = {"set": "http://exslt.org/sets"}
GOOD = (
    "//h1/text()",
    "//a[@href and (position() = 2 or last())]/@href",
    "normalize-space(//p)",
    "string-length( normalize-space ( //p ) ) mod (2)",
    "concat('re:test(', \"$x\", //a)",
    "substring(//p, 2)",
    "//li[has-class('a', 'b')]",
    "set:distinct(//a)",
    "//ancestor::div[count(.//a) > 5]/following-sibling::*[1]",
    "//processing-instruction('x') | //comment() | //node()",
    "//data-table[translate(@x-y, 'a', '(')]",
    "true() and not(false())",
)


@pytest.mark.parametrize("expression", GOOD)
def test_what_lxml_evaluates_is_not_refused(expression: str) -> None:
    assert unknown_part(expression) == ""
    assert selector_problem(Selector("xpath", expression), None) is None


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("//a[re:test(., 'x')]", "re:test() is not available"),
        ("//a[ re:match (., 'x') ]", "re:match() is not available"),
        ("lower-case(//a)", "there is no function lower-case()"),
        ("//svg:path", "the prefix svg: is unknown"),
        ("exsl:node-set(//a)", "the prefix exsl: is unknown"),
        ("//a[$n]", "there are no variables"),
        ("contains(//a)", "contains() takes 2 arguments, not 1"),
        ("concat('a')", "concat() takes at least 2 arguments, not 1"),
        ("count()", "count() takes 1 arguments, not 0"),
        ("substring('a', 1, 2, 3)", "substring() takes 2 to 3 arguments, not 4"),
        ("last(1)", "last() takes 0 arguments, not 1"),
        ("document('file:///etc/passwd')", "there is no function document()"),
    ],
)
def test_what_does_not_exist_is_named(expression: str, said: str) -> None:
    problem = selector_problem(Selector("xpath", expression), None)
    assert problem is not None
    assert said in problem[0]
    with pytest.raises(etree.XPathError):  # lxml says so, too, when it is too late
        etree.XPath(expression, namespaces=NAMESPACES, regexp=False)(etree.fromstring("<html><a/></html>"))


def test_a_check_evaluates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_tree: object) -> None:
        raise AssertionError("a stranger's expression was evaluated")

    monkeypatch.setattr(selectors, "_xpath_function", lambda what: refuse)
    assert selectors.selector_problem(Selector("xpath", "//h1"), None) is None
