"""Which addresses may be reached, as tables."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.fetch.guard import PrivateNetworkPolicy, looks_private, non_public_reason, private_hint, private_name_reason


@pytest.mark.parametrize(
    ("ip", "word"),
    [
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "shared"),
        ("100.127.255.255", "shared"),
        ("169.254.0.1", "link-local"),
        ("169.254.169.254", "metadata"),
        ("168.63.129.16", "metadata"),
        ("192.0.0.192", "metadata"),
        ("100.100.100.200", "metadata"),
        ("192.0.0.1", "reserved"),
        ("192.0.2.1", "documentation"),
        ("198.51.100.7", "documentation"),
        ("203.0.113.9", "documentation"),
        ("192.88.99.1", "6to4"),
        ("198.18.0.1", "benchmarking"),
        ("224.0.0.251", "multicast"),
        ("239.255.255.250", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("0:0:0:0:0:0:0:1", "loopback"),
        ("::127.0.0.1", "reserved"),
        ("::8.8.8.8", "reserved"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:7f00:1", "loopback"),
        ("::ffff:10.1.2.3", "private"),
        ("::ffff:169.254.169.254", "metadata"),
        ("::ffff:0:127.0.0.1", "loopback"),
        ("64:ff9b::127.0.0.1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("64:ff9b:1::8.8.8.8", "NAT64"),
        ("2002:7f00:1::", "6to4"),
        ("2002:808:808::1", "6to4"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "teredo"),
        ("2001:10::1", "reserved"),
        ("2001:db8::1", "documentation"),
        ("3fff::1", "documentation"),
        ("fc00::1", "private"),
        ("fd12:3456::1", "private"),
        ("fd00:ec2::254", "metadata"),
        ("fd20:ce::254", "metadata"),
        ("2606:4700::5efe:127.0.0.1", "loopback"),
        ("2606:4700::200:5efe:10.0.0.1", "private"),
        ("2606:4700::5efe:a9fe:a9fe", "metadata"),
        ("64:ff9b::10.0.0.1", "private"),
        ("64:ff9b::168.63.129.16", "metadata"),
        ("::ffff:192.0.0.192", "metadata"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
        ("100::1", "reserved"),
        ("5f00::1", "reserved"),
        ("4000::1", "reserved"),
        ("", "not an IP address"),
        ("/run/socket", "not an IP address"),
        ("localhost", "not an IP address"),
        ("0x7f.1", "not an IP address"),
    ],
)
def test_addresses_that_are_not_public_are_named(ip: str, word: str) -> None:
    why = non_public_reason(ip, 80)
    assert word in why
    assert ip in why


@pytest.mark.parametrize(
    "ip",
    ["1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "169.253.1.1",
     "11.0.0.1", "168.63.129.17", "192.0.1.1", "198.17.1.1", "198.20.0.1", "223.255.255.255",
     "2606:4700:4700::1111", "2a00:1450:4001::200e", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
     "2606:4700::5efe:8.8.8.8", "2606:4700::1:5efe:10.0.0.1"],
)  # fmt: skip
def test_public_addresses_pass(ip: str) -> None:
    assert non_public_reason(ip, 443) == ""


@given(st.ip_addresses(v=4))
def test_no_address_is_public_that_the_registry_calls_private(address: IPv4Address) -> None:
    if not address.is_global or address.is_multicast:
        assert non_public_reason(str(address), 80)
        assert non_public_reason(f"::ffff:{address}", 80)
        assert non_public_reason(f"64:ff9b::{address}", 80)


@given(st.ip_addresses(v=6))
def test_no_long_address_is_public_that_the_registry_calls_private(address: IPv6Address) -> None:
    if (not address.is_global or address.is_multicast) and address.ipv4_mapped is None:
        assert non_public_reason(str(address), 80)


NONE, ALL = PrivateNetworkPolicy(), PrivateNetworkPolicy(allow_all=True)


@pytest.mark.parametrize(
    ("value", "allow"),
    [
        (True, ALL), ("1", ALL), ("true", ALL), ("YES", ALL), ("on", ALL), ("all", ALL), (["1"], ALL),
        (False, NONE), (None, NONE), ("", NONE), ("0", NONE), ("false", NONE), ("no", NONE),
        ([], NONE), (" , ", NONE),
    ],
)  # fmt: skip
def test_all_or_nothing_in_every_spelling(value: str | bool | list[str] | None, allow: PrivateNetworkPolicy) -> None:
    assert PrivateNetworkPolicy.parse(value) == allow


@pytest.mark.parametrize(
    ("value", "url", "ip", "port", "allowed"),
    [
        ("1", "http://x/", "10.0.0.1", 80, True),
        ("", "http://x/", "10.0.0.1", 80, False),
        ("127.0.0.1:8080", "http://127.0.0.1:8080/", "127.0.0.1", 8080, True),
        ("127.0.0.1:8080", "http://127.0.0.1:22/", "127.0.0.1", 22, False),
        ("127.0.0.1:8080", "http://127.0.0.2:8080/", "127.0.0.2", 8080, False),
        ("127.0.0.1", "http://127.0.0.1:22/", "127.0.0.1", 22, True),
        ("127.0.0.1:8080", "http://[::ffff:7f00:1]:8080/", "::ffff:127.0.0.1", 8080, True),
        ("Intra.Test:8080", "http://intra.test:8080/", "10.0.0.7", 8080, True),
        ("intra.test:8080", "http://INTRA.test.:8080/", "10.0.0.7", 8080, True),
        ("intra.test:8080", "http://intra.test/", "10.0.0.7", 80, False),
        ("intra.test", "https://intra.test/", "10.0.0.7", 443, True),
        ("intra.test", "https://evil.test/", "10.0.0.7", 443, False),
        ("intra.test", "https://intra.test.evil.test/", "10.0.0.7", 443, False),
        ("intra.test", "https://intra.test@evil.test/", "10.0.0.7", 443, False),
        (["a.test:1", "b.test:2"], "http://b.test:2/", "10.0.0.7", 2, True),
        ("a.test:1, b.test:2", "http://b.test:1/", "10.0.0.7", 1, False),
        ("[::1]:8080", "http://[::1]:8080/", "::1", 8080, True),
        ("[::1]:8080", "http://[::1]:22/", "::1", 22, False),
        ("::1", "http://[0:0:0:0:0:0:0:1]:22/", "::1", 22, True),
        ("[::1]", "http://[::1]:22/", "::1", 22, True),
        ("1 intra.test", "http://x/", "10.0.0.1", 80, True),
    ],
)
def test_listed_places_are_allowed_by_url_or_by_address(
    value: str | list[str], url: str, ip: str, port: int, allowed: bool
) -> None:
    assert PrivateNetworkPolicy.parse(value).permits(url, ip, port) is allowed


APART = [
    "169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "192.0.0.192", "100.100.100.200",
    "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe",
    "2606:4700::5efe:a9fe:a9fe", "169.254.7.7", "fe80::1", "fe80::1%eth0", "::ffff:100.100.100.200",
    "64:ff9b:1::a9fe:a9fe", "::169.254.169.254", "fd12::a9fe:a9fe",
]  # fmt: skip


@pytest.mark.parametrize("ip", APART)
def test_all_private_places_are_not_metadata_and_link_local_ones(ip: str) -> None:
    plain = ip.partition("%")[0]
    host = f"[{plain}]" if ":" in plain else plain
    for url in (f"http://{host}/", "http://rebound.example/", "http://localhost/"):
        assert not ALL.permits(url, ip, 80)
        assert not PrivateNetworkPolicy.parse("1,127.0.0.1").permits(url, ip, 80)
    assert not ALL.covers(host)
    for listed in (host, f"{host}:80", f"1,{host}"):
        allow = PrivateNetworkPolicy.parse(listed)
        assert allow.permits(f"http://{host}/", ip, 80) and allow.covers(host)
    assert not PrivateNetworkPolicy.parse(f"1,{host}:81").permits(f"http://{host}/", ip, 80)
    assert "names them" in private_hint(ip)


@pytest.mark.parametrize(
    ("value", "url", "ip", "allowed"),
    [
        ("intra.test", "http://intra.test/", "169.254.169.254", False),
        ("1,intra.test", "http://intra.test/", "fd00:ec2::254", False),
        ("metadata.google.internal", "http://metadata.google.internal/", "169.254.169.254", True),
        ("1", "http://metadata.google.internal/", "169.254.169.254", False),
        ("1", "http://metadata.google.internal/", "metadata.google.internal", False),
        ("1", "http://intra.internal/", "intra.internal", True),
        ("1", "http://metadata.goog/", "metadata.goog", False),
        ("1", "http://[fd12::7f00:1]/", "fd12::7f00:1", True),
        ("printer.local", "http://printer.local/", "fe80::7", True),
        ("1", "http://printer.local/", "fe80::7", False),
        ("1", "http://printer.local/", "10.0.0.7", True),
    ],
)
def test_a_listed_name_does_not_lead_to_metadata_unless_it_is_its_name(
    value: str, url: str, ip: str, allowed: bool
) -> None:
    assert PrivateNetworkPolicy.parse(value).permits(url, ip, 80) is allowed


@pytest.mark.parametrize(
    ("value", "lane", "covered"),
    [
        ("1", "127.0.0.1:8080", True),
        ("1", "127.0.0.1", True),
        ("1", "[::1]:8080", True),
        ("1", "[::1]", True),
        ("1", "10.1.2.3", True),
        ("1", "localhost:8000", True),
        ("1", "shop.localhost", True),
        ("1", "printer.local", True),
        ("1", "web:8000", True),
        ("1", "example.com", False),
        ("1", "example.com:8080", False),
        ("1", "8.8.8.8", False),
        ("1", "[2606:4700:4700::1111]:80", False),
        ("", "127.0.0.1", False),
        ("localhost:8000", "localhost:8000", True),
        ("localhost:8000", "localhost:8001", False),
        ("localhost", "localhost:8001", True),
        ("localhost:80", "localhost", True),
        ("localhost:8000", "localhost", False),
        ("staging.example.com", "staging.example.com", True),
        ("staging.example.com", "example.com", False),
    ],
)
def test_a_lane_is_covered_when_its_host_was_allowed_as_private(value: str, lane: str, covered: bool) -> None:
    assert PrivateNetworkPolicy.parse(value).covers(lane) is covered


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("localhost", True), ("LOCALHOST.", True), ("a.localhost", True), ("nas.local", True), ("web", True),
        ("metadata.google.internal", True), ("router.lan", True), ("wiki.corp", True), ("x.home.arpa", True),
        ("metadata.goog", True), ("Metadata.Goog.", True), ("www.metadata.goog", False),
        ("127.0.0.1", True), ("[::1]", True), ("::1", True), ("::ffff:10.0.0.1", True),
        ("fe80::1%eth0", True),
        ("example.com", False), ("local.example.com", False), ("8.8.8.8", False), ("[2606:4700::1]", False),
        ("mylocal", True), ("corp.example", False), ("abcdef.onion", False),
    ],
)  # fmt: skip
def test_hosts_that_are_private_by_name_are_known_before_they_are_resolved(host: str, private: bool) -> None:
    assert bool(private_name_reason(host, 80)) is private
    assert looks_private(host if host.count(":") < 2 or host[0] == "[" else f"[{host}]") is private
    if private and "metadata" not in host.lower() and "fe80" not in host:
        assert "unless allowed with --allow-private" in private_hint(host)


@pytest.mark.parametrize(
    ("allowed", "ip", "permitted"),
    [
        ("10.0.0.0/8", "10.9.8.7", True),
        ("10.0.0.0/8", "::ffff:10.9.8.7", True),
        ("10.0.0.0/8", "192.168.1.1", False),
        ("10.0.0.0/8,192.168.1.0/24", "192.168.1.1", True),
        ("fd12::/16", "fd12:3456::1", True),
        ("fd12::/16", "fd13::1", False),
        ("100.64.0.0/10", "100.64.0.1", True),
        ("100.64.0.0/10", "100.100.100.200", False),  # metadata is listed by itself or not at all
        ("100.64.0.0/10,100.100.100.200", "100.100.100.200", True),
        ("169.254.0.0/16", "169.254.7.7", True),
        ("169.254.0.0/16", "169.254.169.254", False),
        ("169.254.169.254/32", "169.254.169.254", False),
        ("0.0.0.0/0", "10.0.0.1", True),
        ("0.0.0.0/0", "169.254.7.7", False),
        ("fc00::/7", "fd00:ec2::254", False),
    ],
)
def test_a_network_allows_its_addresses_but_never_metadata(allowed: str, ip: str, permitted: bool) -> None:
    assert PrivateNetworkPolicy.parse(allowed).permits("http://shop.test/", ip, 80) is permitted
    assert PrivateNetworkPolicy.parse(allowed.split(",")).permits("http://shop.test/", ip, 8080) is permitted


@pytest.mark.parametrize(
    ("lane", "covered"), [("10.1.2.3", True), ("10.1.2.3:8080", True), ("11.1.2.3", False), ("shop.test", False)]
)
def test_hosts_of_an_allowed_network_are_ones_own(lane: str, covered: bool) -> None:
    assert PrivateNetworkPolicy.parse("10.0.0.0/8").covers(lane) is covered
