"""Guard: which addresses may be connected to.

The question is asked with the address the socket is about to connect to, so it does not matter how
it was spelled, which name led to it, or what the name resolved to a second ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

import msgspec

# The first match names the reason, so the exact ones stand before the wide ones.
_IPV4: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(network), word)
    for network, word in (
        ("169.254.169.254/32", "cloud metadata"),
        ("169.254.170.2/32", "cloud metadata"),
        ("169.254.170.23/32", "cloud metadata"),
        ("168.63.129.16/32", "cloud metadata"),
        ("192.0.0.192/32", "cloud metadata"),
        ("100.100.100.200/32", "cloud metadata"),
        ("0.0.0.0/8", "unspecified"),
        ("127.0.0.0/8", "loopback"),
        ("10.0.0.0/8", "private"),
        ("172.16.0.0/12", "private"),
        ("192.168.0.0/16", "private"),
        ("100.64.0.0/10", "shared (CGNAT)"),
        ("169.254.0.0/16", "link-local"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "documentation"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("198.18.0.0/15", "benchmarking"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)

_IPV6: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(network), word)
    for network, word in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("fd00:ec2::254/128", "cloud metadata"),
        ("fd00:ec2::23/128", "cloud metadata"),
        ("fd20:ce::254/128", "cloud metadata"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
        ("2001::/32", "teredo"),
        ("2001::/23", "reserved"),
        ("2002::/16", "6to4"),
    )
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
# In these the last 32 bits are the IPv4 address that is really reached.
_EMBEDS_IPV4 = tuple(IPv6Network(n) for n in ("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96"))
_ISATAP = (0x00005EFE, 0x02005EFE)  # in the bits before the last 32, under any prefix

# No public site has such a name: they are reserved, or in use inside of many networks.
_LOCAL_SUFFIXES = (
    *(".localhost", ".local", ".internal", ".test", ".home.arpa", ".localdomain", ".lan", ".home", ".corp"),
    *(".intranet", ".private", ".invalid", ".svc"),
)
# Whoever may ask there gets the keys of the machine: "all" does not mean these, only their own names do.
METADATA, LINK_LOCAL = "cloud metadata", "link-local"
_METADATA_NAMES = frozenset(
    ("metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal")
)
PRIVATE_HINT = "private addresses are refused unless allowed with --allow-private"
_APART_HINT = "cloud metadata and link-local addresses are refused unless --allow-private names them"
_YES = frozenset({"1", "true", "yes", "on", "all", "*"})
_NO = frozenset({"", "0", "false", "no", "off", "none"})


@lru_cache(maxsize=1024)
def refusal(ip: str, port: int) -> str:
    """Why this address is not on the public internet; empty if it is."""
    try:
        address = ip_address(ip.partition("%")[0])
    except ValueError:
        return f"{ip} is not an IP address"
    word = _word(address)
    return f"{_join(ip, port)} is a {word} address" if word else ""


def way_out(host: str) -> str:
    """What to do about a refusal."""
    return _APART_HINT if _apart(_plain(host)) else PRIVATE_HINT


@lru_cache(maxsize=1024)
def _apart(host: str) -> str:
    """What sets a name or number apart from other private ones; empty if nothing does."""
    if host in _METADATA_NAMES:
        return METADATA
    try:
        address = ip_address(host)
    except ValueError:
        return ""
    word = _word(address)
    if word in (METADATA, LINK_LOCAL):
        return word
    # Networks that translate addresses may have prefixes of their own before the IPv4 address.
    inside = _word4(IPv4Address(int(address) & 0xFFFFFFFF)) if word and address.version == 6 else ""
    return METADATA if inside == METADATA else ""


def _word(address: IPv4Address | IPv6Address) -> str:
    return _word4(address) if isinstance(address, IPv4Address) else _word6(address)


def _word4(address: IPv4Address) -> str:
    return next((word for network, word in _IPV4 if address in network), "")


def _word6(address: IPv6Address) -> str:
    for network, word in _IPV6:
        if address in network:
            return word
    inside = IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in _EMBEDS_IPV4):
        return _word4(inside)
    if address not in _GLOBAL_UNICAST:
        return "reserved"
    return _word4(inside) if int(address) >> 32 & 0xFFFFFFFF in _ISATAP else ""


def private_by_name(host: str, port: int) -> str:
    """Why a host is known to be private before anybody has resolved its name; empty if it is not."""
    host = _plain(host)
    if _numeric(host):
        return refusal(host, port)
    return f"{host}:{port} is a private name" if _looks_private(host, port) else ""


def looks_private(lane: str) -> bool:
    """Whether the host of a lane is private by its name or number."""
    return _looks_private(*_place(lane.lower()))


class AllowPrivate(msgspec.Struct, frozen=True):
    """Which private places may be reached: none, all, or only those listed as host or host:port.

    All does not mean cloud metadata and link-local addresses: these have to be listed, too.
    """

    everything: bool = False
    places: frozenset[tuple[str, int]] = frozenset()  # port 0 stands for every port

    @classmethod
    def parse(cls, value: str | bool | Sequence[str] | None) -> AllowPrivate:
        """Read a flag ("1"), a list, or a text with items separated by commas or spaces."""
        if isinstance(value, bool):
            return cls(everything=value)
        items = value.replace(",", " ").split() if isinstance(value, str) else list(value or ())
        words = {item.strip().lower() for item in items}
        return cls(bool(words & _YES), frozenset(_place(word) for word in words - _NO - _YES))

    def permits(self, url: str, ip: str, port: int) -> bool:
        """May a request for `url` connect to this address although it is private?"""
        number = _plain(ip)
        apart = _apart(number)
        if self.everything and not apart:
            return True
        if not self.places:
            return False
        if self._lists(number, port):
            return True
        host = _plain(urlsplit(url).hostname or "")
        # A name that was listed for something else may lead to metadata all of a sudden.
        return self._lists(host, port) and (apart != METADATA or bool(_apart(host)))

    def covers(self, lane: str) -> bool:
        """Is the host of this lane one that was allowed as private?

        With everything allowed these are the hosts that are private by their name or number: a
        public site does not lose its pace because the loopback interface was opened as well.
        """
        host, port = _place(lane.lower())
        if self.everything and not _apart(host):
            return _looks_private(host, port)
        if port:
            return self._lists(host, port)
        return any((host, known) in self.places for known in (0, 80, 443))

    def _lists(self, host: str, port: int) -> bool:
        return (host, port) in self.places or (host, 0) in self.places


def _numeric(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _looks_private(host: str, port: int) -> bool:
    if _numeric(host):
        return bool(refusal(host, port))
    return "." not in host or host.endswith(_LOCAL_SUFFIXES) or host in _METADATA_NAMES


def _place(text: str) -> tuple[str, int]:
    if text.count(":") > 1 and not text.startswith("["):
        return _plain(text), 0  # an IPv6 address without brackets has no port
    if text.startswith("["):
        host, _, rest = text.partition("]")
        port = rest.lstrip(":")
    else:
        host, _, port = text.partition(":")
    return _plain(host), int(port) if port.isdigit() else 0


def _plain(host: str) -> str:
    """One spelling per host: no brackets, zone, capitals or final dot; addresses in their short form."""
    host = host.strip("[]").partition("%")[0].lower().rstrip(".")
    if ":" not in host:
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _join(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
