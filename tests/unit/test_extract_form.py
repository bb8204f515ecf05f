"""Forms: what is sent is what a browser would send, with the values that were given."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import pytest

from shoal.errors import UsageError
from shoal.extract.page import Follow, Page

URL = "https://shop.test/login/?from=home"
LOGIN = """
<form id=search action="/search?old=1"><input name=q><button>Go</button></form>
<form name=login method=post action=check>
  <input type=hidden name=csrf value="t&amp;k"><input name=user value=anna><input type=password name=pass>
  <input type=checkbox name=stay value=1><input type=checkbox name=news checked>
  <input type=radio name=role value=buyer checked><input type=radio name=role value=seller>
  <select name=lang><option value=de>Deutsch<option selected>en</select>
  <select name=tags multiple><option selected>a<option>b<option selected value=c>C</select>
  <textarea name=note>
two
lines</textarea>
  <input name=off value=1 disabled><fieldset disabled><input name=off2 value=1></fieldset>
  <input name=""><input type=file name=photo><datalist><input name=listed></datalist>
  <button name=act value=login>Log in</button><input type=submit name=act value=Register formaction=/new>
  <input type=image name=pic src=x><button type=button name=no value=1>No</button>
</form><input form=search name=outside value=1>
"""


def form_of(html: str, what: str = "form", **options: Any) -> Any:
    return Page.from_html(html, URL).form(what, **options)


def sent(follows: tuple[Follow, ...]) -> tuple[str, str, list[tuple[str, str]]]:
    ((follow,),) = [follows]
    options = follow.request_options
    if options is None:
        url, _, query = follow.hrefs[0].partition("?")
        return "GET", url, parse_qsl(query, keep_blank_values=True)
    assert dict(options.headers) == {"Content-Type": "application/x-www-form-urlencoded"}
    return options.method, follow.hrefs[0], parse_qsl((options.body or b"").decode(), keep_blank_values=True)


def test_a_form_is_sent_as_it_stands_with_its_hidden_fields_and_first_button() -> None:
    assert sent(form_of(LOGIN, "login").submit()) == (
        "POST",
        "https://shop.test/login/check",
        [
            ("csrf", "t&k"), ("user", "anna"), ("pass", ""), ("news", "on"), ("role", "buyer"), ("lang", "en"),
            ("tags", "a"), ("tags", "c"), ("note", "two\r\nlines"), ("act", "login"),
        ],
    )  # fmt: skip


def test_values_take_the_place_of_those_on_the_page() -> None:
    form = form_of(LOGIN, "login")
    values = {
        "user": "bea",
        "pass": "é&",
        "stay": True,
        "news": False,
        "role": "seller",
        "tags": ["b", "c"],
        "note": None,
    }
    _, _, pairs = sent(form.submit(**values, lang=7))
    assert pairs == [
        ("csrf", "t&k"), ("user", "bea"), ("pass", "é&"), ("stay", "1"), ("role", "seller"), ("lang", "7"),
        ("tags", "b"), ("tags", "c"), ("act", "login"),
    ]  # fmt: skip


def test_a_form_by_get_replaces_the_query_and_has_fields_from_elsewhere_on_the_page() -> None:
    assert sent(form_of(LOGIN, "search").submit(q="a b")) == (
        "GET",
        "https://shop.test/search",
        [("q", "a b"), ("outside", "1")],
    )


@pytest.mark.parametrize(
    ("button", "url", "last"),
    [
        ("Register", "https://shop.test/new", ("act", "Register")),
        ("Log in", "https://shop.test/login/check", ("act", "login")),
        ("pic", "https://shop.test/login/check", ("pic.y", "0")),
        ("", "https://shop.test/login/check", ("note", "two\r\nlines")),
    ],
)
def test_a_button_is_pressed_by_name_value_or_text(button: str, url: str, last: tuple[str, str]) -> None:
    _, where, pairs = sent(form_of(LOGIN, "login").submit(button=button))
    assert (where, pairs[-1]) == (url, last)


@pytest.mark.parametrize("what", ["login", "form[name=login]", "input[type=password]"])
def test_a_form_is_found_by_name_by_selector_or_by_what_is_in_it(what: str) -> None:
    assert "csrf" in form_of(LOGIN, what).values


def test_without_an_action_a_form_goes_to_the_page_itself_and_not_to_its_base() -> None:
    ((follow),) = form_of("<base href=/other/><form method=post><input name=a></form>").submit()
    assert follow.hrefs == (URL,)


def test_multipart_forms_are_the_same_request_each_time() -> None:
    html = '<form method=post enctype="multipart/form-data"><input name=\'a"b\' value=ü></form>'
    (one,), (other,) = form_of(html).submit(), form_of(html).submit()
    assert one == other
    body, (_, kind) = one.request_options.body, one.request_options.headers[0]
    boundary = kind.partition("boundary=")[2]
    assert body.decode() == (
        f'--{boundary}\r\nContent-Disposition: form-data; name="a%22b"\r\n\r\nü\r\n--{boundary}--\r\n'
    )


def test_plain_text_forms() -> None:
    (follow,) = form_of("<form method=post enctype=text/plain><input name=a value=1></form>").submit()
    assert (follow.request_options.body, follow.request_options.headers) == (
        b"a=1\r\n",
        (("Content-Type", "text/plain"),),
    )


@pytest.mark.parametrize(("charset", "value"), [("latin1", "%FC"), ("no-such", "%C3%BC"), ("utf-16", "%C3%BC")])
def test_values_are_written_in_the_charset_of_the_form(charset: str, value: str) -> None:
    (follow,) = form_of(f"<form accept-charset={charset}><input name=a></form>").submit(a="ü")
    assert follow.hrefs[0].endswith(f"?a={value}")


def test_options_of_follow_go_with_the_form() -> None:
    (follow,) = form_of(LOGIN, "login", meta={"n": 1}, priority=5, session="anna", to="account").submit()
    assert (follow.meta, follow.priority, follow.handler) == ({"n": 1}, 5, "account")
    assert follow.request_options is not None and follow.request_options.session == "anna"


def test_a_field_that_the_form_does_not_have_is_an_error_unless_it_is_meant() -> None:
    form = form_of(LOGIN, "search")
    with pytest.raises(UsageError, match="no field 'query'; it has: q, outside") as caught:
        form.submit(query="x")
    assert "submit({'query': …})" in caught.value.hint
    assert ("query", "x") in sent(form.submit({"query": "x"}))[2]


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda: form_of(LOGIN, "logn"), "has no form 'logn'; it has: 'search', 'login'"),
        (lambda: form_of("<p>hi"), "no form at all"),
        (lambda: form_of(LOGIN, "form["), "form\\["),
        (lambda: form_of(LOGIN, "login").submit(button="Buy"), "no button 'Buy'; it has: 'Log in', 'Register', 'pic'"),
        (lambda: form_of("<form action='mailto:a@b'><input name=a></form>").submit(), "not a URL"),
        (
            lambda: form_of("<form action='http://shop.test/'><input type=password name=a></form>").submit(),
            "unencrypted",
        ),
    ],
)
def test_what_cannot_be_done_says_what_is_there(act: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        act()


async def test_fetch_sends_the_form_from_inside_a_handler() -> None:
    asked: list[Any] = []

    async def fetch(url: str, options: Any) -> Page:
        asked.append((url, options.method))
        return Page.from_html("<p>welcome", url)

    page = Page(Page.from_html(LOGIN, URL).response, fetch=fetch)
    assert (await page.form("login").fetch(user="bea")).text == "<p>welcome"
    assert asked == [("https://shop.test/login/check", "POST")]
