"""Who may ask a server, and what they may do: tokens, sessions, and pages of somebody else's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_process import ServerProcess, running_server
from servers.apache import stock_apache
from servers.haproxy import stock_haproxy
from servers.nginx import stock_nginx
from shell_user import ShellUser
from wait import HANG, wait_until

OWN = "an-own-token-that-is-long-enough"


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Without any token."""
    with running_server(f"sqlite:///{tmp_path_factory.mktemp('open')}/queue.db", "--no-maintenance") as made:
        yield made


class TokenServer:
    """A server process with a token of each scope."""

    def __init__(self, made: ServerProcess) -> None:
        self.server = made
        self.tokens = {name: self.make(name) for name in ("read", "operate", "admin", "work")}

    def make(self, name: str, scope: str = "") -> str:
        answer = self.server.post("/api/v1/tokens", {"name": name, "scopes": [scope or name]})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    def ask(self, method: str, path: str, token: str = "", **more: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers |= dict(more.pop("headers", {}))  # type: ignore[call-overload]
        with httpx.Client(base_url=self.server.url, trust_env=False) as client:
            return client.request(method, path, headers=headers, **more)  # type: ignore[arg-type]

    def browser(self, token: str) -> AbstractContextManager[httpx.Client]:
        return browsing(self.server.url, token)


@contextmanager
def browsing(url: str, token: str) -> Iterator[httpx.Client]:
    """Somebody who logged in."""
    with httpx.Client(base_url=url, trust_env=False, headers={"Accept": "text/html"}, timeout=HANG) as client:
        answer = client.post("/login", data={"token": token, "next": "/"})
        assert answer.status_code == 303, answer.text
        yield client


# without a token

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
NOBODY = 65534


def said_to(open_server: ServerProcess, **options: Any) -> Any:
    """What a curl of another user, or with other options, is told."""
    found = shutil.which("curl")
    assert found is not None
    done = subprocess.run(
        [found, "-s", "--noproxy", "*", f"{open_server.url}/api/v1/runs", *options.pop("flags", ())],
        capture_output=True, check=True, text=True, timeout=HANG, **options,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_this_users_own_programs_need_no_token(open_server: ServerProcess) -> None:
    assert said_to(open_server)["items"] == []


@needs_root
def test_programs_of_other_users_do(open_server: ServerProcess) -> None:
    said = said_to(open_server, user=NOBODY, group=NOBODY, cwd="/")
    assert (said["status"], said["type"]) == (403, "urn:shoal:problem:user-requires-token")


@pytest.mark.parametrize(
    "flags",
    [("--http1.0",), ("-H", "X-Forwarded-Proto: http"), ("-H", "X-Real-IP: 127.0.0.1"), ("-H", "Forwarded: for=x")],
)
def test_what_a_proxy_passes_on_does_too(open_server: ServerProcess, flags: tuple[str, ...]) -> None:
    assert said_to(open_server, flags=flags)["type"] == "urn:shoal:problem:proxy-requires-token"


@needs_root
@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ("", "proxy-requires-token"),
        ("proxy_http_version 1.1; proxy_set_header Connection '';", "user-requires-token"),
        ("proxy_http_version 1.1; proxy_set_header Host $http_host;", "user-requires-token"),
    ],
    ids=["stock", "http/1.1", "with the host's name"],
)
def test_nobody_is_admin_behind_an_nginx_that_says_nothing(open_server: ServerProcess, lines: str, kind: str) -> None:
    with stock_nginx(open_server.url.removeprefix("http://"), lines) as url:
        answer = httpx.get(f"{url}/api/v1/runs", trust_env=False)
    assert (answer.status_code, answer.json()["type"]) == (403, f"urn:shoal:problem:{kind}")


@needs_root
@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ("", "proxy-requires-token"),
        ("ProxyAddHeaders Off", "user-requires-token"),
        ("ProxyAddHeaders Off\nProxyPreserveHost On", "user-requires-token"),
        ("ProxyAddHeaders Off\nSetEnv force-proxy-request-1.0 1", "proxy-requires-token"),
    ],
    ids=["stock", "without headers", "with the host's name", "http/1.0"],
)
def test_nobody_is_admin_behind_an_apache_that_says_nothing(open_server: ServerProcess, lines: str, kind: str) -> None:
    with stock_apache(open_server.url.removeprefix("http://"), lines) as url:
        answer = httpx.get(f"{url}/api/v1/runs", trust_env=False)
    assert (answer.status_code, answer.json()["type"]) == (403, f"urn:shoal:problem:{kind}")


@needs_root
@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ("", "user-requires-token"),
        ("mode tcp", "user-requires-token"),
        ("option forwardfor", "proxy-requires-token"),
        ("http-request set-header Host localhost", "user-requires-token"),
    ],
    ids=["stock", "tcp", "forwardfor", "with this machine's name"],
)
def test_nobody_is_admin_behind_a_haproxy_that_says_nothing(open_server: ServerProcess, lines: str, kind: str) -> None:
    with stock_haproxy(open_server.url.removeprefix("http://"), lines) as url:
        answer = httpx.get(f"{url}/api/v1/runs", trust_env=False)
    assert (answer.status_code, answer.json()["type"]) == (403, f"urn:shoal:problem:{kind}")


@needs_root
@pytest.mark.parametrize("proxy", [stock_nginx, stock_apache, stock_haproxy])
def test_with_a_token_every_proxy_will_do(token_server: TokenServer, proxy: Any) -> None:
    upstream = token_server.server.url.removeprefix("http://")
    with proxy(upstream) as url, httpx.Client(base_url=url, trust_env=False) as client:
        given = {"Authorization": f"Bearer {token_server.tokens['read']}"}
        assert client.get("/api/v1/runs").status_code == 401
        assert client.get("/api/v1/runs", headers=given).status_code == 200
        with client.stream("GET", "/api/v1/events", headers=given) as stream:
            assert next(stream.iter_bytes())


@pytest.fixture(scope="module")
def token_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    queue = f"sqlite:///{tmp_path_factory.mktemp('token_server')}/queue.db"
    flags = ("--access-log", "--log-level", "debug", "--trusted-proxies", "127.0.0.1")
    with running_server(queue, *flags, token=OWN) as made:
        yield TokenServer(made)


# Without a token


def test_without_any_token_this_machine_may_do_everything(open_server: ServerProcess) -> None:
    assert open_server.get("/api/v1/tokens").status_code == 200
    for name in ("localhost", "127.0.0.1:1", "[::1]:8080", "127.9.9.9"):
        assert open_server.get("/stats", headers={"Host": name}).status_code == 200, name


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost.evil.example:80"},
        {"Host": "10.0.0.1"},
        {"Host": ""},
        {"X-Forwarded-For": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1"},
    ],
)
def test_names_of_others_and_proxies_are_refused_where_nobody_is_asked(
    open_server: ServerProcess, headers: dict[str, str]
) -> None:
    for path in ("/stats", "/api/v1/runs", "/metrics", "/openapi.json"):
        answer = open_server.get(path, headers=headers)
        assert answer.status_code == 403, (path, answer.text)
        assert "token" in answer.json()["hint"]
    page = open_server.get("/runs", headers={"Accept": "text/html"} | headers)
    assert page.status_code == 403 and page.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 422),
        ({"Sec-Fetch-Site": "same-origin"}, 422),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
    ],
)
def test_a_page_of_somebody_else_s_cannot_act(open_server: ServerProcess, headers: dict[str, str], status: int) -> None:
    assert open_server.post("/api/v1/tokens", {"name": "!"}, headers=headers).status_code == status


def test_our_own_page_can(open_server: ServerProcess) -> None:
    assert open_server.post("/api/v1/tokens", {"name": "!"}, headers={"Origin": open_server.url}).status_code == 422


# With tokens

PATHS = [
    ("GET", "/stats", "read"), ("GET", "/workers", "read"), ("GET", "/metrics", "read"),
    ("GET", "/api/v1/runs", "read"),
    ("GET", "/openapi.json", "read"), ("POST", "/api/v1/runs", "operate"), ("GET", "/api/v1/tokens", "admin"),
    ("DELETE", "/api/v1/tokens/nobody", "admin"), ("POST", "/api/v1/queue/now", "work"),
    ("GET", "/api/v1/scale", "read"), ("POST", "/api/v1/scale", "operate"),
]  # fmt: skip
MAY = {
    "read": {"read"}, "operate": {"read", "operate"}, "work": {"work"},
    "admin": {"read", "operate", "admin", "work"},
}  # fmt: skip


@pytest.mark.parametrize(("method", "path", "scope"), PATHS)
def test_a_token_may_what_its_scopes_say(token_server: TokenServer, method: str, path: str, scope: str) -> None:
    answer = token_server.ask(method, path)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.headers["content-type"] == "application/problem+json"
    for name, token in token_server.tokens.items():
        status = token_server.ask(method, path, token).status_code
        assert (status != 403) == (scope in MAY[name]), (name, status)
        assert status != 401


def test_health_is_open_to_all(token_server: TokenServer) -> None:
    for path in ("/health", "/ready", "/api/health", "/api/ready"):
        assert token_server.ask("GET", path).status_code == 200


def test_a_wrong_token_is_refused_and_guessing_takes_time(token_server: TokenServer) -> None:
    assert token_server.ask("GET", "/stats", headers={"Authorization": "Basic b3duOm93bg=="}).status_code == 401
    there = {"X-Forwarded-For": "192.0.2.1"}  # as the proxy that is trusted says it
    guesses = [token_server.ask("GET", "/stats", f"guess-{number}", headers=there) for number in range(12)]
    statuses = [answer.status_code for answer in guesses]
    assert set(statuses[:8]) == {401} and statuses[-1] == 429 and int(guesses[-1].headers["retry-after"])
    assert token_server.ask("POST", "/login", data={"token": "guess"}, headers=there).status_code == 429
    assert token_server.ask("GET", "/stats", OWN, headers=there).status_code == 200  # who has one is let in
    assert token_server.ask("GET", "/stats", "guess").status_code == 401  # others have their own guesses


def test_nobody_but_a_trusted_proxy_says_where_a_guess_comes_from(tmp_path: Path) -> None:
    with running_server(f"sqlite:///{tmp_path}/queue.db", "--no-maintenance", token=OWN) as made:
        guesses = [{"Authorization": "Bearer guess", "X-Forwarded-For": f"192.0.2.{number}"} for number in range(14)]
        statuses = [made.get("/stats", headers=guess).status_code for guess in guesses]
    assert set(statuses[:8]) == {401} and statuses[-1] == 429


def test_nobody_we_know_may_not_send_much(token_server: TokenServer) -> None:
    assert token_server.ask("POST", "/api/v1/runs", content=b"x" * 20_000).status_code == 413
    assert token_server.ask("POST", "/api/v1/runs", OWN, content=b"x" * 20_000).status_code == 422
    assert token_server.ask("POST", "/api/v1/runs", content=b"{}").status_code == 401


def test_a_token_in_a_url_opens_nothing(token_server: TokenServer) -> None:
    assert token_server.ask("GET", f"/stats?token={OWN}&access_token={OWN}").status_code == 401


def test_a_token_that_was_removed_opens_nothing_and_ends_its_sessions(token_server: TokenServer) -> None:
    token = token_server.make("short", "read")
    with token_server.browser(token) as browser:
        assert token_server.ask("GET", "/stats", token).status_code == browser.get("/stats").status_code == 200
        assert token_server.ask("DELETE", "/api/v1/tokens/short", OWN).status_code == 204
        assert token_server.ask("GET", "/stats", token).status_code == 401
        assert browser.get("/stats").status_code in (303, 401)
        token_server.make("short", "read")  # another of the same name does not bring it back
        assert browser.get("/stats").status_code in (303, 401)


def test_without_its_last_token_a_server_that_others_can_reach_is_closed_to_all(tmp_path: Path) -> None:
    queue = f"sqlite:///{tmp_path}/queue.db"
    with ShellUser(tmp_path) as user:
        token = user.shoal("token", "add", "last", "--queue", queue).out.splitlines()[0]
        with running_server(queue, "--no-maintenance", "--listen", "0.0.0.0:0") as made:
            given = {"Authorization": f"Bearer {token}", "Host": "127.0.0.1"}
            assert made.get("/stats", headers=given).status_code == 200
            assert user.shoal("token", "remove", "last", "--queue", queue).code == 0
            wait_until(lambda: made.get("/stats", headers=given).status_code != 200)
            assert made.get("/stats", headers={"Host": "127.0.0.1"}).status_code == 401


# Sessions


def test_a_session_is_a_cookie_that_scripts_and_other_sites_do_not_get(token_server: TokenServer) -> None:
    answer = token_server.ask("POST", "/login", data={"token": token_server.tokens["read"], "next": "/"})
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Max-Age=43200", "Path=/"))
    assert token_server.tokens["read"] not in cookie
    secure = token_server.ask(
        "POST",
        "/login",
        data={"token": token_server.tokens["read"], "next": "/"},
        headers={"X-Forwarded-Proto": "https"},
    )
    assert "Secure" in secure.headers["set-cookie"]


def test_a_session_may_act_only_with_the_word_of_its_pages(token_server: TokenServer) -> None:
    with (
        token_server.browser(token_server.tokens["admin"]) as browser,
        token_server.browser(token_server.tokens["admin"]) as other,
    ):
        words = [re.findall(r'name="csrf" content="(\w+)"', it.get("/").text)[0] for it in (browser, other)]
        for headers, status in (
            ({}, 403),
            ({"X-Shoal-CSRF": "x" * 64}, 403),
            ({"X-Shoal-CSRF": words[1]}, 403),
            ({"X-Shoal-CSRF": words[0], "Origin": "https://evil.example"}, 403),
            ({"X-Shoal-CSRF": words[0], "Sec-Fetch-Site": "cross-site"}, 403),
            ({"X-Shoal-CSRF": words[0]}, 422),
            ({"X-Shoal-CSRF": words[0], "Origin": token_server.server.url}, 422),
        ):
            answer = browser.post("/api/v1/tokens", json={"name": "!"}, headers={"Accept": "*/*", **headers})
            assert answer.status_code == status, (headers, answer.text)


def test_a_session_has_the_scopes_of_its_token(token_server: TokenServer) -> None:
    with token_server.browser(token_server.tokens["read"]) as browser:
        assert browser.get("/stats").status_code == 200
        assert browser.get("/api/v1/tokens").status_code == 403


@pytest.mark.parametrize("wrong", ["", "x", "x.y", "e30.00", "." * 2000, "\xe4.\xe4"])
def test_a_cookie_of_somebody_s_own_making_is_none(token_server: TokenServer, wrong: str) -> None:
    with token_server.browser(token_server.tokens["read"]) as browser:
        name, value = next(iter(browser.cookies.items()))
    for cookie in (wrong, value[:-1] + ("0" if value[-1] != "0" else "1"), "a" + value):
        headers = {"Cookie": f"{name}={cookie}".encode("latin-1")}
        assert token_server.ask("GET", "/stats", headers=headers).status_code == 401  # type: ignore[arg-type]


def test_nobody_is_logged_in_by_a_page_of_somebody_else_s(token_server: TokenServer) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = token_server.ask("POST", "/login", data={"token": token_server.tokens["read"]}, headers=headers)
        assert answer.status_code == 403 and "set-cookie" not in answer.headers


def test_servers_of_one_queue_share_sessions_and_tokens(tmp_path: Path) -> None:
    queue = f"sqlite:///{tmp_path}/queue.db"
    with (
        running_server(queue, "--no-maintenance", token=OWN) as one,
        running_server(queue, "--no-maintenance", token=OWN) as two,
    ):
        token = one.post("/api/v1/tokens", {"name": "x", "scopes": ["read"]}).json()["token"]
        with browsing(one.url, token) as browser:
            assert browser.get("/stats").status_code == 200
            browser.base_url = two.url
            assert browser.get("/stats").status_code == 200


def test_logging_out_ends_the_session_on_every_server_for_whoever_has_its_cookie(tmp_path: Path) -> None:
    queue = f"sqlite:///{tmp_path}/queue.db"
    with (
        running_server(queue, "--no-maintenance", token=OWN) as one,
        running_server(queue, "--no-maintenance", token=OWN) as two,
        browsing(one.url, OWN) as browser,
        browsing(one.url, OWN) as other,
    ):
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        copied = {"Cookie": cookie, "Authorization": ""}
        assert one.get("/stats", headers=copied).status_code == two.get("/stats", headers=copied).status_code == 200
        with one.client.stream("GET", "/api/v1/events", headers=copied) as stream:
            pieces = stream.iter_bytes()
            assert next(pieces)
            assert browser.post("/logout", headers={"Origin": "https://evil.example"}).status_code == 403
            assert one.get("/stats", headers=copied).status_code == 200
            assert browser.post("/logout").status_code == 303
            assert one.get("/stats", headers=copied).status_code == 401  # here at once
            for _ in pieces:  # what it was watching ends, too
                pass
        wait_until(lambda: two.get("/stats", headers=copied).status_code == 401)
        assert other.get("/stats").status_code == 200  # other sessions of the token go on
        assert browser.post("/logout").status_code == 303  # without a session it is no error


def test_tokens_are_in_no_log_page_or_message(token_server: TokenServer) -> None:
    with token_server.browser(token_server.tokens["admin"]) as browser:
        shown = "".join(browser.get(path).text for path in ("/", "/settings", "/docs", "/login", "/nothing"))
    token_server.ask("GET", "/stats?token=" + token_server.tokens["read"], token_server.tokens["read"])
    for path in ("/", "/api/v1/runs/"):
        shown += token_server.ask("GET", path + token_server.tokens["read"], token_server.tokens["read"]).text
    token_server.ask("GET", "/search?q=" + token_server.tokens["read"], token_server.tokens["read"])
    said = "\n".join(token_server.server.log_lines) + shown + token_server.ask("GET", "/api/v1/tokens", OWN).text
    for token in (*token_server.tokens.values(), OWN):
        assert token not in said
    assert "request" in said and "/stats?token=[hidden]" in said  # it was logged, without that


# The command


def test_tokens_are_made_listed_and_removed_by_the_command(tmp_path: Path) -> None:
    with ShellUser(tmp_path) as user:
        assert "No tokens" in user.shoal("token", "list").out
        made = user.shoal("token", "add", "ops", "--scope", "operate")
        token = made.out.splitlines()[0]
        assert made.code == 0 and token.startswith("shoal_") and len(token) > 40
        listed = user.shoal("token", "list").out
        assert "ops" in listed and "operate" in listed and token not in listed and token[-4:] in listed
        again = user.shoal("token", "add", "ops")
        assert again.code == 2 and "token ops already exists" in again.err
        assert user.shoal("token", "add", "no good").code == 2
        assert token.encode() not in b"".join(path.read_bytes() for path in (tmp_path / ".shoal").glob("*"))
        assert user.ask("token", "list")[0]["scopes"] == ["operate"]
        assert user.shoal("token", "remove", "ops").code == 0
        assert user.shoal("token", "remove", "ops").code == 2
        short = user.shoal("serve", "--listen", "127.0.0.1:0", SHOAL_TOKEN="short")
        assert short.code == 2 and "could be guessed" in short.err and "short\n" not in short.err
