"""Deeds about many things mean what was chosen, and nothing else."""

from __future__ import annotations

import pytest

from shoal.control.hosting import Which
from shoal.errors import Usage
from shoal.web.pages.acts import _chosen
from shoal.web.pages.deeds import EVERY_HOST, hosts_meant, numbers


def test_a_host_with_a_comma_in_its_name_is_one_host() -> None:
    told = {"ids": _chosen(["a,b.example", "c.example:81", "a,b.example"])}
    assert hosts_meant("*", told) == Which(names=("a,b.example", "c.example:81"))


def test_rows_that_are_no_tasks_are_told_from_those_that_are() -> None:
    assert numbers(_chosen(["7", "x", "-1", "8"])) == [7, 0, 0, 8]
    assert numbers("") == []


@pytest.mark.parametrize(
    ("about", "told", "meant"),
    [
        (EVERY_HOST, {}, Which()),
        (EVERY_HOST, {"only": "held"}, Which(only="held")),
        ("*", {}, Which("*")),  # there may be hosts with a star in their name
        ("shop", {"only": "parked"}, Which("shop", "parked")),
    ],
)
def test_all_hosts_are_meant_only_where_that_is_said(about: str, told: dict[str, str], meant: Which) -> None:
    assert hosts_meant(about, told) == meant


@pytest.mark.parametrize("told", [{"ids": " "}, {"only": "odd"}])
def test_what_names_no_host_never_means_all(told: dict[str, str]) -> None:
    with pytest.raises(Usage):
        hosts_meant(EVERY_HOST, told)
