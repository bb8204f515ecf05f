"""Pages of the shop: as they usually are, as twelve walls give them, and twelve that are odd but good."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from zlib import crc32

WORDS = [
    "oak", "linen", "brass", "amber", "river", "stone", "velvet", "cedar", "silver", "copper", "willow", "marble",
    "cotton", "maple", "ivory", "cobalt", "saffron", "walnut", "granite", "ember", "meadow", "harbour", "lantern",
]  # fmt: skip
PARTS = ["Kitchen", "Garden", "Office", "Bedroom", "Lighting", "Textiles", "Tools", "Toys", "Books", "Outdoor"]


@dataclass(frozen=True)
class Answer:
    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Wall = Callable[[str, int], Answer]  # path, and the number of the request


def html(text: str) -> Answer:
    return Answer(text.encode())


def _random(path: str) -> random.Random:
    return random.Random(crc32(path.encode()))


def name_of(path: str) -> str:
    rng = _random(path)
    return f"{rng.choice(WORDS).title()} {rng.choice(WORDS)} {path.rpartition('/')[2]}"


def layout(title: str, main: str, *, lang: str = "en", forms: bool = False) -> str:
    """The shop's frame around the content of a page."""
    nav = "".join(
        f'<li class="nav-item"><a class="nav-link" href="/category/{n}">{_in(lang, part)}</a></li>'
        for n, part in enumerate(PARTS, 1)
    )
    foot = "".join(
        f'<li><a class="foot" href="/page/{w}">{_in(lang, w)} {_in(lang, "information")}</a></li>' for w in WORDS[:12]
    )
    search = '<form class="search" action="/search"><input name="q"></form>' if forms else ""
    return (
        f'<!doctype html><html lang="{lang}"><head><title>{title}</title><link rel="stylesheet" href="/shop.css">'
        f'<script src="/shop.js"></script></head><body class="shop"><header class="top"><a class="logo" href="/">'
        f'{_in(lang, "The shop of all things")}</a>{search}<ul class="nav">{nav}</ul></header><main class="main">{main}'
        f'</main><footer class="bottom"><p class="claim">{_in(lang, "Delivered since ages to every door")}</p>'
        f'<ul class="feet">{foot}</ul><p class="legal">{_in(lang, "All prices with tax and without shipping")}</p>'
        f"</footer></body></html>"
    )


def _in(lang: str, text: str) -> str:
    return text if lang == "en" else text[::-1] + lang


def text_of(path: str, sentences: int) -> str:
    rng = _random(path + "#text")
    return "".join(
        f"<p>The {' '.join(rng.choice(WORDS) for _ in range(12))} is {rng.choice(WORDS)}.</p>" for _ in range(sentences)
    )


def product(path: str, *, price: bool = True, lang: str = "en", extra: str = "", sentences: int = 0) -> str:
    rng = _random(path)
    number = int(path.rpartition("/")[2])
    related = "".join(
        f'<li class="related"><a href="/product/{number * 7 % 997 + n}">{name_of(f"/product/{number * 7 % 997 + n}")}'
        "</a></li>"
        for n in range(6)
    )
    cost = f'<b class="price">{rng.randint(5, 900)}.{rng.randint(10, 99)}</b>' if price else "<i>Sold out</i>"
    return (
        f'<article class="product"><h1>{name_of(path)}</h1>{cost}<div class="text">'
        f'{text_of(path, sentences or rng.randint(6, 30))}</div>{extra}<ul class="others">{related}</ul></article>'
    )


def good(path: str) -> Answer:
    """A page of the shop as it usually is."""
    if path.startswith("/category/"):
        number = int(path.rpartition("/")[2])
        items = "".join(
            f'<li class="item"><a href="/product/{number * 20 + n}">{name_of(f"/product/{number * 20 + n}")}</a></li>'
            for n in range(20)
        )
        return html(
            layout(f"{PARTS[number % 10]} {number} – Shop", f"<h1>{PARTS[number % 10]} {number}</h1><ul>{items}</ul>")
        )
    return html(layout(f"{name_of(path)} – Shop", product(path)))


# Twelve walls.


def captcha(path: str, number: int) -> Answer:
    return html(
        '<html><head><title>Robot Check</title></head><body><div class="box"><h4>Enter the characters you see</h4>'
        '<form method="get" action="/errors/validate"><img src="/captcha/abc.jpg"><input type="text" name="field">'
        '<button type="submit">Continue</button></form></div><a href="/conditions">Conditions</a></body></html>'
    )


def challenge(path: str, number: int) -> Answer:
    token = random.Random(number).randbytes(24).hex()
    return html(
        f"<!DOCTYPE html><html><head><title>Just a moment...</title><style>body{{margin:0}}</style></head><body>"
        f'<div id="wait">Checking your connection</div><script>window._opt={{r:"{token}",u:"{path}"}};'
        f'(function(){{var s=document.createElement("script");s.src="/cdn/{token}.js"}})()</script></body></html>'
    )


def consent_redirect(path: str, number: int) -> Answer:
    if path.startswith("/consent"):
        return html(
            "<html><head><title>Before you continue</title></head><body><h1>Before you continue</h1>"
            "<p>We and 814 partners use data to keep things going.</p>"
            '<form action="/consent/save" method="post"><button>Accept all</button><button>Reject all</button></form>'
            '<a href="/privacy">Privacy</a> <a href="/terms">Terms</a></body></html>'
        )
    return Answer(b"", 302, {"location": f"/consent?continue={path}&r={number}"})


def login_redirect(path: str, number: int) -> Answer:
    if path.startswith("/account/login"):
        return html(layout("Sign in – Shop", _sign_in()))
    return Answer(b"", 302, {"location": f"/account/login?next={path}"})


def login_in_layout(path: str, number: int) -> Answer:
    return html(layout("Sign in – Shop", _sign_in()))


def _sign_in() -> str:
    return (
        '<h1>Welcome back</h1><form class="login" method="post"><input name="mail"><input type="password" name="word">'
        "<button>Sign in</button></form>"
    )


def empty(path: str, number: int) -> Answer:
    return Answer(b"")


def refresh(path: str, number: int) -> Answer:
    token = random.Random(number).randbytes(8).hex()
    return html(
        f'<html><head><meta http-equiv="refresh" content="0; url=/verify?t={token}&u={path}"></head><body>'
        "<noscript>One moment, please</noscript></body></html>"
    )


def plain_text(path: str, number: int) -> Answer:
    return Answer(
        f"Access from your network was limited.\nReference: {number * 7919}\n".encode(),
        headers={"content-type": "text/plain"},
    )


def json_error(path: str, number: int) -> Answer:
    body = f'{{"error": {{"code": "forbidden", "detail": "automated traffic"}}, "request_id": "{number:032x}"}}'
    return Answer(body.encode(), headers={"content-type": "application/json"})


def consent_with_title(path: str, number: int) -> Answer:
    """The page's own title, and nothing else of it."""
    partners = "".join(f'<li class="vendor">Partner {word} may store information</li>' for word in WORDS)
    return html(
        f"<html><head><title>{name_of(path)} – Shop</title></head><body class='cmp'><div class='cmp-box'>"
        f"<p class='cmp-text'>Your choice about cookies on this site</p><ul class='cmp-vendors'>{partners}</ul>"
        f"<button class='cmp-yes'>Agree</button><button class='cmp-no'>Manage</button></div>"
        f"<script>cmp.start('{path}')</script></body></html>"
    )


def sorry_in_layout(path: str, number: int) -> Answer:
    """All of the site's frame, and an excuse in it."""
    return html(layout("Shop", f'<div class="sorry"><p>Sorry, we cannot show this now.</p><p>Code {number}</p></div>'))


def changing(path: str, number: int) -> Answer:
    """Three walls by turns, as big as the pages themselves, with different filling each time."""
    rng = random.Random(number)
    kind = ("Verification", "Security check", "Please confirm")[number % 3]
    filling = "".join(f'<div class="f{rng.randrange(10**6)}">{rng.choice(WORDS)}</div>' for _ in range(90))
    return html(
        f'<html><head><title>{kind}</title></head><body class="w{number % 3}"><h2 class="q">{kind} needed</h2>'
        f'<form class="press-{number % 3}" action="/confirm"><button class="hold">Press and hold</button></form>'
        f'<p class="why">Why do I see this, {kind}?</p><p class="who">Ask the administrator about {kind}</p>'
        f'<div hidden class="filling">{filling}</div></body></html>'
    )


WALLS: dict[str, Wall] = {
    wall.__name__: wall
    for wall in (
        captcha, challenge, consent_redirect, login_redirect, login_in_layout, empty, refresh, plain_text, json_error,
        consent_with_title, sorry_in_layout, changing,
    )
}  # fmt: skip


# Twelve kinds of pages that are odd but good; each is at some URLs of the shop.


def short_article(path: str) -> Answer:
    return html(
        layout(
            f"{name_of(path)} – Shop",
            f'<article><h1>{name_of(path)}</h1><b class=price>1.00</b><div class="text"><p>New.</p></div></article>',
        )
    )


def empty_category(path: str) -> Answer:
    title = f"{PARTS[int(path.rpartition('/')[2]) % 10]} {path.rpartition('/')[2]}"
    return html(layout(f"{title} – Shop", f"<h1>{title}</h1><p>There is nothing here yet.</p>"))


def sold_out(path: str) -> Answer:
    return html(layout(f"{name_of(path)} – Shop", product(path, price=False, sentences=2)))


def not_found(path: str) -> Answer:
    """Status 200, and the same under every URL that does not exist."""
    return html(layout("Not found – Shop", '<p class="none">We have looked everywhere.</p>'))


def very_long(path: str) -> Answer:
    return html(layout(f"{name_of(path)} – Shop", product(path, sentences=4_000)))


def other_language(path: str) -> Answer:
    return html(layout(f"{name_of(path)} – Laden", product(path, lang="de"), lang="de"))


def redesigned(path: str) -> Answer:
    """The whole site made anew: what handlers look for is not there any more."""
    nav = "".join(f'<a class="tile" href="/category/{n}"><em>{part}</em></a>' for n, part in enumerate(PARTS, 1))
    boxes = "".join(
        f'<section class="card"><div class="lead">{line}</div></section>' for line in text_of(path, 12).split("</p>")
    )
    return html(
        f'<!doctype html><html lang="en"><head><title>{name_of(path)} | The new shop</title></head><body class="v2">'
        f'<div class="bar"><span class="brand">New shop</span>{nav}</div><div class="hero"><h2>{name_of(path)}</h2>'
        f'<span class="cost">{_random(path).randint(5, 99)}</span></div><div class="grid">{boxes}</div></body></html>'
    )


def print_version(path: str) -> Answer:
    """Without the site's frame, at URLs of another shape."""
    return html(
        f"<html><head><title>{name_of(path)} (to print)</title></head><body><h1>{name_of(path)}</h1>"
        f"<b class=price>2.00</b><div class=text>{text_of(path, 8)}</div></body></html>"
    )


def contact(path: str) -> Answer:
    form = '<form action="/send"><input name="who"><textarea name="what"></textarea><button>Send</button></form>'
    return html(layout(f"Contact {path.rpartition('/')[2]} – Shop", f"<h1>Contact</h1><p>Write to us.</p>{form}"))


def login_page(path: str) -> Answer:
    return html(layout("Sign in – Shop", _sign_in()))


def same_title(path: str) -> Answer:
    return html(layout("Gallery", product(path)))


def with_video(path: str) -> Answer:
    video = f'<iframe class="video" src="/video/{path.rpartition("/")[2]}"></iframe>'
    return html(layout(f"{name_of(path)} – Shop", product(path, extra=video)))


ODD: dict[str, Callable[[str], Answer]] = {
    odd.__name__: odd
    for odd in (
        short_article, empty_category, sold_out, not_found, very_long, other_language, redesigned, print_version,
        contact, login_page, same_title, with_video,
    )
}  # fmt: skip
