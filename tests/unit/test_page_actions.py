"""Page actions on many rows apply to the rows that were chosen, and to nothing else."""

from __future__ import annotations

import pytest

from shoal.control.host_actions import HostSelection
from shoal.errors import UsageError
from shoal.web.pages.action_forms import _picked_rows
from shoal.web.pages.actions import EVERY_HOST, selected_hosts, task_ids


def test_a_host_with_a_comma_in_its_name_is_one_host() -> None:
    fields = {"ids": _picked_rows(["a,b.example", "c.example:81", "a,b.example"])}
    assert selected_hosts("*", fields) == HostSelection(names=("a,b.example", "c.example:81"))


def test_rows_that_are_no_tasks_are_told_from_those_that_are() -> None:
    assert task_ids(_picked_rows(["7", "x", "-1", "8"])) == [7, 0, 0, 8]
    assert task_ids("") == []


@pytest.mark.parametrize(
    ("about", "fields", "meant"),
    [
        (EVERY_HOST, {}, HostSelection()),
        (EVERY_HOST, {"only": "held"}, HostSelection(only="held")),
        ("*", {}, HostSelection("*")),  # there may be hosts with a star in their name
        ("shop", {"only": "parked"}, HostSelection("shop", "parked")),
    ],
)
def test_all_hosts_are_meant_only_where_that_is_said(about: str, fields: dict[str, str], meant: HostSelection) -> None:
    assert selected_hosts(about, fields) == meant


@pytest.mark.parametrize("fields", [{"ids": " "}, {"only": "odd"}])
def test_what_names_no_host_never_means_all(fields: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        selected_hosts(EVERY_HOST, fields)
