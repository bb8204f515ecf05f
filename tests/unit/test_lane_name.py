"""Names of lanes: a host, or a host and the exit by which its requests leave."""

from __future__ import annotations

import pytest

from shoal.core.lane import exit_of_lane, host_of_lane, is_exit_name, lane_name


@pytest.mark.parametrize("host", ["shop.example", "shop.example:8443", "[::1]:80", "127.0.0.1", "task:mail", ""])
@pytest.mark.parametrize("exit", ["", "north", "de-1.proxy_2", "0", "x" * 63])
def test_host_and_exit_are_found_again_in_the_name(host: str, exit: str) -> None:
    lane = lane_name(host, exit)
    assert (host_of_lane(lane), exit_of_lane(lane)) == (host, exit)
    assert lane == (f"{host}@{exit}" if exit else host)


@pytest.mark.parametrize("name", [" ", "a b", "North", "-x", "a@b", "a/b", "a:b", "x" * 64, "ü", "a\n"])
def test_what_cannot_be_the_name_of_an_exit_is_refused(name: str) -> None:
    assert not is_exit_name(name)
    with pytest.raises(ValueError, match="not the name of an exit"):
        lane_name("shop.example", name)
