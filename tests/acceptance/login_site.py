"""A site whose pages are for members: it can be logged into by a form, by JSON, and by scripts in a browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from small_site import Hit, Reply, SmallSite, small_site

USER, PASSWORD = "ada@shop.example", "love{l}ace:&=é"
SECRET = f"{USER}:{PASSWORD}"
FORM = """<html><body><form class="login" action="/login" method="post">
<input type="hidden" name="csrf" value="{csrf}"><input name="user"><input type="password" name="password">
<button>Log in</button></form>{words}</body></html>"""
SCRIPTED = """<html><body><div id="app">wait</div><script>
const app = document.getElementById("app");
app.innerHTML = '<input id="user"><input id="password" type="password"><button id="go">go</button><p id="said"></p>';
document.getElementById("go").onclick = async () => {
  const body = JSON.stringify({user: document.getElementById("user").value,
                               password: document.getElementById("password").value, by: "script"});
  const answer = await fetch("/api/login", {method: "POST", body});
  if (!answer.ok) { document.getElementById("said").textContent = "wrong"; return; }
  const found = await answer.json();
  localStorage.setItem("token", found.data.token);
  document.cookie = "member=" + found.data.token + "; path=/";
  app.innerHTML = '<p class="account">welcome</p>';
};
</script></body></html>"""


@dataclass
class LoginSite:
    """`pages` are for members: without a valid cookie or token they lead to the login, with `links` they list all."""

    site: SmallSite
    pages: int = 30
    logins: list[str] = field(default_factory=list)  # the tokens given, in order
    refused: int = 0
    at_once: int = 0  # logins at the same moment, at most
    secret: str = SECRET
    before_answer: Callable[[], None] = lambda: None  # of a login
    valid: set[str] = field(default_factory=set)
    visits: list[tuple[str, str]] = field(default_factory=list)  # path and token of each page that was given
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def url(self, path: str = "/") -> str:
        return self.site.url(path)

    def end_sessions(self) -> None:
        with self._lock:
            self.valid.clear()

    def answer_form(self, hit: Hit) -> Reply:
        if hit.method == "GET":
            return _page(FORM.format(csrf="c5rf", words=""), {"Set-Cookie": "csrf=c5rf; Path=/"})
        given = parse_qs(hit.body.decode())
        names = [given.get(name, [""])[0] for name in ("user", "password", "csrf")]
        if ":".join(names[:2]) != self.secret or names[2] != "c5rf" or "csrf=c5rf" not in hit.headers.get("cookie", ""):
            self.refused += 1
            return _page(FORM.format(csrf="c5rf", words="<p>wrong password</p>"))
        token = self._new_token()
        return 303, {"Location": "/account", "Set-Cookie": f"member={token}; Path=/; HttpOnly"}, b""

    def answer_json(self, hit: Hit) -> Reply:
        given = json.loads(hit.body)
        if f"{given['user']}:{given['password']}" != self.secret:
            self.refused += 1
            return 401, {"Content-Type": "application/json"}, b'{"error": "wrong"}'
        body = {"data": {"token": self._new_token()}}
        return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()

    def answer_member(self, hit: Hit) -> Reply:
        token = token_of(hit)
        if token not in self.valid:
            if hit.path.startswith("/api/"):
                return 401, {}, b"who are you?"
            return 302, {"Location": "/login"}, b""
        self.visits.append((hit.path, token))
        links = "".join(f'<a href="/item/{number}">{number}</a>' for number in range(self.pages))
        return _page(f'<html><body><p class="account">ada</p><h1>{hit.path}</h1>{links}</body></html>')

    def _new_token(self) -> str:
        with self._lock:
            self._now += 1
            self.at_once = max(self.at_once, self._now)
        self.before_answer()
        with self._lock:
            self._now -= 1
            token = f"t0ken-{len(self.logins) + 1}-s3cret"
            self.logins.append(token)
            self.valid.add(token)
        return token


def token_of(hit: Hit) -> str:
    header = hit.headers.get("authorization", "").removeprefix("Bearer ")
    cookies = dict(one.strip().partition("=")[::2] for one in hit.headers.get("cookie", "").split(";"))
    return header or cookies.get("member", "")


@contextmanager
def login_site() -> Iterator[LoginSite]:
    with small_site() as plain:
        site = LoginSite(plain)
        plain.pages |= {
            "/login": site.answer_form,
            "/api/login": site.answer_json,
            "/scripted": _page(SCRIPTED),
            "/account": site.answer_member,
            "/item/*": site.answer_member,
            "/api/*": site.answer_member,
        }
        yield site


def _page(text: str, headers: dict[str, str] | None = None) -> Reply:
    return 200, headers or {}, text.encode()
