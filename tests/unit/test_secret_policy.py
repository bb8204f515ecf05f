"""To which hosts a secret may be shown, and who may ask for that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.config.load import Settings
from shoal.control.secret_policy import SecretPolicy, SubmittedAs, host_matches
from shoal.errors import GiveUp, UsageError
from shoal.extract.scraper import Scraper
from shoal.launch.request_options import request_builder_for

SHOP, OTHER = "https://shop.example", "https://evil.example"


@pytest.mark.parametrize(
    ("pattern", "place", "means"),
    [
        ("shop.example", "shop.example", True),
        ("shop.example", "shop.example:8443", True),
        ("shop.example", "www.shop.example", False),
        ("shop.example", "evilshop.example", False),
        ("shop.example", "shop.example.evil.example", False),
        ("*.shop.example", "www.shop.example", True),
        ("*.shop.example", "a.b.shop.example:81", True),
        ("*.shop.example", "shop.example", False),
        ("*.shop.example", "evilshop.example", False),
        ("shop.example:8443", "shop.example:8443", True),
        ("shop.example:8443", "shop.example", False),
        ("[::1]", "[::1]:80", True),
        ("[::1]:81", "[::1]:80", False),
        ("127.0.0.1:80", "127.0.0.1:80", True),
    ],
)
def test_hosts_are_meant_whole(pattern: str, place: str, means: bool) -> None:
    assert host_matches(pattern, place) is means


def secret_policy(
    sent: SubmittedAs = None, *, bound: bool = False, by: str = "--auth", home: tuple[str, ...] = (SHOP,)
) -> SecretPolicy:
    settings = replace(
        Settings(auth="Shop"), secret_hosts={"shop": ("shop.example",)} if bound else {}, sources={"auth": by}
    )
    return SecretPolicy(settings, home, sent)


@pytest.mark.parametrize(
    ("sent", "bound", "by", "home", "why"),
    [
        (None, False, "--auth", (SHOP,), ""),
        (None, True, "--auth", (SHOP,), ""),
        (None, True, "--auth", (SHOP, OTHER), "not for evil.example"),
        ("code", False, "--auth", (SHOP,), ""),
        ("code", False, "scraper books: auth", (SHOP,), ""),
        ("code", False, "run x: auth", (SHOP,), "not bound to a host"),
        ("code", True, "run x: auth", (SHOP,), ""),
        ("code", True, "run x: auth", (OTHER,), "not for evil.example"),
        ("template", False, "run x: auth", (SHOP,), "not bound to a host"),
        ("template", False, "template t: auth", (SHOP,), "not bound to a host"),
        ("template", False, "--auth", (OTHER,), "not bound to a host"),
        ("template", True, "template t: auth", (SHOP,), ""),
        ("template", True, "--auth", (OTHER,), "not for evil.example"),
    ],
)
def test_a_run_of_somebody_else_s_gets_only_what_is_bound(
    sent: SubmittedAs, bound: bool, by: str, home: tuple[str, ...], why: str
) -> None:
    made = secret_policy(sent, bound=bound, by=by, home=home)
    if not why:
        made.check()
        return
    with pytest.raises(UsageError, match=why) as caught:
        made.check()
    assert "[secrets] shop = {" in caught.value.hint and "hosts" in caught.value.hint


@pytest.mark.parametrize(
    ("sent", "bound", "origin", "may"),
    [
        (None, False, OTHER, True),
        (None, True, OTHER, False),
        (None, True, SHOP, True),
        ("code", False, SHOP, True),
        ("code", False, OTHER, False),
        ("template", False, SHOP, False),
        ("template", True, SHOP, True),
        ("template", True, OTHER, False),
    ],
)
def test_what_a_task_asks_for_is_held_to_the_same(sent: SubmittedAs, bound: bool, origin: str, may: bool) -> None:
    assert secret_policy(sent, bound=bound).allows("SHOP", origin) is may


@pytest.mark.parametrize("queue", ["redis://h/0", "postgresql://h/x", "https://h", "rediss://h", ""])
@pytest.mark.parametrize("sent", [None, "code", "template"])
@pytest.mark.parametrize("name", ["shop", "other", "OTHER"])
@pytest.mark.parametrize("origin", [SHOP, OTHER])
def test_a_task_in_a_queue_that_others_write_to_chooses_no_secret(
    queue: str, sent: SubmittedAs, name: str, origin: str
) -> None:
    """Only what the command, the code or the machine's own settings name is used, and only where these say."""
    policy = SecretPolicy(Settings(auth="shop", queue=queue, sources={"auth": "--auth"}), (SHOP,), sent)
    is_ours = name == "shop" and origin == SHOP and sent != "template"
    is_own_file = not queue and sent is None
    assert policy.allows(name, origin) is (is_ours or is_own_file)
    # What code of this machine says is believed, but not to which page a task has led it.
    assert policy.allows_code(name, origin) is (is_own_file or (origin == SHOP and sent != "template"))


@pytest.mark.parametrize(
    ("sent", "source", "shown"),
    [
        (None, "--header", True),
        (None, "shoal.toml: header", True),
        ("code", "shoal.toml: header", True),
        ("code", "run r: header", True),
        ("template", "run r: header", True),
        ("template", "template t: header", True),
        ("template", "shoal.toml: header", False),
        ("template", "SHOAL_HEADER", False),
        ("template", "--header", False),
    ],
)
def test_credentials_in_headers_of_a_machine_do_not_go_where_a_stranger_s_template_starts(
    sent: SubmittedAs, source: str, shown: bool
) -> None:
    lines = ("Authorization: Bearer x", "Cookie: a=b", "X-Api-Key: k", "Accept-Language: de")
    settings = Settings(header=lines, sources={"header": source})
    request = request_builder_for(settings, Scraper("t", f"{OTHER}/"), sent=sent).build(f"{OTHER}/", None, f"{OTHER}/")
    names = {name for name, _ in request.headers}
    assert names == ({"Authorization", "Cookie", "X-Api-Key"} if shown else set()) | {"Accept-Language"}


@pytest.mark.parametrize(("sent", "goes"), [(None, True), ("code", False)])
def test_a_login_goes_through_the_proxy_of_the_same_command(sent: SubmittedAs, goes: bool) -> None:
    settings = Settings(
        auth="shop", proxy="way", queue="redis://h/0", secrets={"shop": "me:pw", "way": "http://a:b@proxy.example:3128"},
        sources={"auth": "--auth"},
    )  # fmt: skip
    builder = request_builder_for(settings, Scraper("t", "http://shop.example/"), sent=sent)
    try:
        request = builder.build("http://shop.example/", None, "http://shop.example/")
    except GiveUp:
        assert not goes
    else:
        assert goes and request.headers and request.proxy == "http://a:b@proxy.example:3128"


def test_a_login_goes_where_the_command_starts_and_not_where_the_template_in_the_queue_does() -> None:
    settings = Settings(auth="shop", queue="redis://h/0", secrets={"shop": "me:pw"}, sources={"auth": "--auth"})
    changed = Scraper("t", f"{OTHER}/")  # by somebody who can write documents
    builder = request_builder_for(settings, changed, start=(f"{SHOP}/",))
    assert builder.build(f"{OTHER}/", None, f"{OTHER}/").headers == ()
    assert [name for name, _ in builder.build(f"{SHOP}/", None, f"{SHOP}/").headers] == ["authorization"]
