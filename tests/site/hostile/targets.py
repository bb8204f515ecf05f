"""Targets: the canary, a server that nobody may ever reach, in every spelling of its address."""

from __future__ import annotations

from hostile.behaviour import Group
from hostile.client_connection import ClientConnection, Request, answer, html, links
from hostile.redirects import moved

group = Group("targets")

SPELLINGS = {
    "plain": "http://127.0.0.1:{port}/",
    "short": "http://127.1:{port}/",
    "hex": "http://0x7f000001:{port}/",
    "hex-dotted": "http://0x7f.0x0.0x0.0x1:{port}/",
    "decimal": "http://2130706433:{port}/",
    "octal": "http://017700000001:{port}/",
    "octal-dotted": "http://0177.0.0.01:{port}/",
    "localhost": "http://localhost:{port}/",
    "localhost-dot": "http://LOCALHOST.:{port}/",
    "sub-localhost": "http://x.localhost:{port}/",
    "ipv6": "http://[::1]:{port}/",
    "ipv6-long": "http://[0:0:0:0:0:0:0:1]:{port}/",
    "mapped": "http://[::ffff:127.0.0.1]:{port}/",
    "mapped-hex": "http://[::ffff:7f00:1]:{port}/",
    "compatible": "http://[::127.0.0.1]:{port}/",
    "zero": "http://0.0.0.0:{port}/",
    "zero-short": "http://0:{port}/",
    "zero-ipv6": "http://[::]:{port}/",
    "fullwidth": "http://１２７．０．０．１:{port}/",
    "circled": "http://①②⑦.⓪.⓪.①:{port}/",
    "ideographic-dots": "http://127。0。0。1:{port}/",
    "percent": "http://%31%32%37.0.0.1:{port}/",
    "dot-at-end": "http://127.0.0.1.:{port}/",
    "other-loopback": "http://127.8.9.10:{port}/",
    "no-scheme": "//127.0.0.1:{port}/",
    "backslashes": "http:\\\\127.0.0.1:{port}\\",
    "tab": "http://127.0\t.0.1:{port}/",
    "https": "https://127.0.0.1:{port}/",
}
WITH_USER = {
    "user": "http://good@127.0.0.1:{port}/",
    "user-like-host": "http://127.0.1.1:80@127.0.0.1:{port}/",
    "user-and-backslash": "http://127.0.0.1:{port}\\@127.0.1.1/",
    "zone": "http://[::1%25lo]:{port}/",
}
BEYOND_LOOPBACK = {
    "metadata": "http://169.254.169.254/latest/meta-data/",
    "metadata-decimal": "http://2852039166/",
    "metadata-mapped": "http://[::ffff:169.254.169.254]/",
    "metadata-azure": "http://168.63.129.16/",
    "metadata-oracle": "http://192.0.0.192/",
    "metadata-alibaba": "http://100.100.100.200/",
    "private-10": "http://10.0.0.1/",
    "private-172": "http://172.16.0.1/",
    "private-192": "http://192.168.0.1/",
    "shared": "http://100.64.0.1/",
    "multicast": "http://224.0.0.1/",
    "broadcast": "http://255.255.255.255/",
    "nat64": "http://[64:ff9b::7f00:1]/",
    "6to4": "http://[2002:7f00:1::1]/",
    "teredo": "http://[2001:0:7f00:1::1]/",
    "unique-local": "http://[fd00:ec2::254]/",
    "link-local": "http://[fe80::1]/",
}


def _redirect(name: str, target: str, expect: str, leaves_machine: bool) -> None:
    @group.does(f"to-{name}", expect, f"leads to {target}", leaves_machine=leaves_machine)
    async def redirect(connection: ClientConnection, request: Request) -> None:
        await connection.send(moved(target.format(port=connection.site.canary_port(f"to-{name}"))))


for _name, _target in SPELLINGS.items():
    _redirect(_name, _target, "blocked.private", False)
for _name, _target in WITH_USER.items():
    _redirect(_name, _target, "redirects|blocked.private", False)
for _name, _target in BEYOND_LOOPBACK.items():
    _redirect(_name, _target, "blocked.private", True)


def all_targets(site: object, name: str) -> list[str]:
    port = site.canary_port(name)  # type: ignore[attr-defined]
    targets = [*SPELLINGS.values(), *WITH_USER.values()]
    return [target.format(port=port) for target in targets]


@group.does("links-to-canary", "done", "a page with links to all of those")
async def links_to_canary(connection: ClientConnection, request: Request) -> None:
    targets = (*all_targets(connection.site, "links-to-canary"), *BEYOND_LOOPBACK.values())
    await connection.send(answer(html("links", links(*targets))))


@group.does("base-to-canary", "done", "a page whose <base> is such an address")
async def base_to_canary(connection: ClientConnection, request: Request) -> None:
    base = f"http://127.0.0.1:{connection.site.canary_port('base-to-canary')}/"
    await connection.send(answer(f'<base href="{base}"><title>base</title>{links("a", "/b", "?c")}'))


async def _robots_to_canary(connection: ClientConnection, request: Request) -> None:
    await connection.send(moved(f"http://127.0.0.1:{connection.site.canary_port('robots-to-canary')}/robots.txt"))


@group.does("robots-to-canary", "done", "a robots.txt that leads to such an address", robots=_robots_to_canary)
async def robots_to_canary(connection: ClientConnection, request: Request) -> None:
    await connection.send(answer(html("robots")))
