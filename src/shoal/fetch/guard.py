"""PrivateNetworkPolicy: which IP addresses may be connected to.

The question is asked with the address the socket is about to connect to, so it does not matter how
it was spelled, which name led to it, or what the name resolved to a second ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
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
_SPECIAL_HINT = "cloud metadata and link-local addresses are refused unless --allow-private names them"
_ALL_WORDS = frozenset({"1", "true", "yes", "on", "all", "*"})
_NONE_WORDS = frozenset({"", "0", "false", "no", "off", "none"})


@lru_cache(maxsize=1024)
def non_public_reason(ip: str, port: int) -> str:
    """Why this address is not on the public internet; empty if it is."""
    try:
        address = ip_address(ip.partition("%")[0])
    except ValueError:
        return f"{ip} is not an IP address"
    word = _range_name(address)
    return f"{_host_and_port(ip, port)} is a {word} address" if word else ""


def private_hint(host: str) -> str:
    """What to do about a refusal."""
    return _SPECIAL_HINT if _special_range(_normalize_host(host)) else PRIVATE_HINT


@lru_cache(maxsize=1024)
def _special_range(host: str) -> str:
    """What sets a name or number apart from other private ones; empty if nothing does."""
    if host in _METADATA_NAMES:
        return METADATA
    try:
        address = ip_address(host)
    except ValueError:
        return ""
    word = _range_name(address)
    if word in (METADATA, LINK_LOCAL):
        return word
    # Networks that translate addresses may have prefixes of their own before the IPv4 address.
    inside = _ipv4_range(IPv4Address(int(address) & 0xFFFFFFFF)) if word and address.version == 6 else ""
    return METADATA if inside == METADATA else ""


def _range_name(address: IPv4Address | IPv6Address) -> str:
    return _ipv4_range(address) if isinstance(address, IPv4Address) else _ipv6_range(address)


def _ipv4_range(address: IPv4Address) -> str:
    return next((word for network, word in _IPV4 if address in network), "")


def _ipv6_range(address: IPv6Address) -> str:
    for network, word in _IPV6:
        if address in network:
            return word
    inside = IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in _EMBEDS_IPV4):
        return _ipv4_range(inside)
    if address not in _GLOBAL_UNICAST:
        return "reserved"
    return _ipv4_range(inside) if int(address) >> 32 & 0xFFFFFFFF in _ISATAP else ""


def private_name_reason(host: str, port: int) -> str:
    """Why a host is known to be private before anybody has resolved its name; empty if it is not."""
    host = _normalize_host(host)
    if _is_numeric(host):
        return non_public_reason(host, port)
    return f"{host}:{port} is a private name" if _looks_private(host, port) else ""


def looks_private(lane: str) -> bool:
    """Whether the host of a lane is private by its name or number."""
    return _looks_private(*_split_host_port(lane.lower()))


class PrivateNetworkPolicy(msgspec.Struct, frozen=True):
    """Which private places may be reached: none, all, or only those listed as host, host:port or network.

    All does not mean cloud metadata and link-local addresses: these have to be listed, too, metadata one by one.
    """

    allow_all: bool = False
    hosts: frozenset[tuple[str, int]] = frozenset()  # port 0 stands for every port
    networks: frozenset[IPv4Network | IPv6Network] = frozenset()

    @classmethod
    def parse(cls, value: str | bool | Sequence[str] | None) -> PrivateNetworkPolicy:
        """Read a flag ("1"), a list, or a text with items separated by commas or spaces."""
        if isinstance(value, bool):
            return cls(allow_all=value)
        items = value.replace(",", " ").split() if isinstance(value, str) else list(value or ())
        words = {item.strip().lower() for item in items}
        places = words - _NONE_WORDS - _ALL_WORDS
        networks = frozenset(ip_network(place) for place in places if "/" in place)
        hosts = frozenset(_split_host_port(place) for place in places if "/" not in place)
        return cls(bool(words & _ALL_WORDS), hosts, networks)

    def permits(self, url: str, ip: str, port: int) -> bool:
        """May a request for `url` connect to this address although it is private?"""
        number = _normalize_host(ip)
        special = _special_range(number)
        if self.allow_all and not special:
            return True
        if not self.hosts and not self.networks:
            return False
        if self._is_listed(number, port) or self._in_network(number, special):
            return True
        host = _normalize_host(urlsplit(url).hostname or "")
        # A name that was listed for something else may lead to metadata all of a sudden.
        return self._is_listed(host, port) and (special != METADATA or bool(_special_range(host)))

    def covers(self, lane: str) -> bool:
        """Is the host of this lane one that was allowed as private?

        With everything allowed these are the hosts that are private by their name or number: a
        public site does not lose its pace because the loopback interface was opened as well.
        """
        host, port = _split_host_port(lane.lower())
        if self.allow_all and not _special_range(host):
            return _looks_private(host, port)
        if self._in_network(host, _special_range(host)):
            return True
        if port:
            return self._is_listed(host, port)
        return any((host, known) in self.hosts for known in (0, 80, 443))

    def _is_listed(self, host: str, port: int) -> bool:
        return (host, port) in self.hosts or (host, 0) in self.hosts

    def _in_network(self, host: str, special: str) -> bool:
        """Whether a number is in a listed network; one that only happens to hold a special address does not mean it."""
        if not self.networks or special == METADATA or not _is_numeric(host):
            return False
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(
            address in network and (not special or _range_name(network.network_address) == special)
            for network in self.networks
        )


def _is_numeric(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _looks_private(host: str, port: int) -> bool:
    if _is_numeric(host):
        return bool(non_public_reason(host, port))
    return "." not in host or host.endswith(_LOCAL_SUFFIXES) or host in _METADATA_NAMES


def _split_host_port(text: str) -> tuple[str, int]:
    if text.count(":") > 1 and not text.startswith("["):
        return _normalize_host(text), 0  # an IPv6 address without brackets has no port
    if text.startswith("["):
        host, _, rest = text.partition("]")
        port = rest.lstrip(":")
    else:
        host, _, port = text.partition(":")
    return _normalize_host(host), int(port) if port.isdigit() else 0


def _normalize_host(host: str) -> str:
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


def _host_and_port(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
