"""Formats of ids: what they may say, and what comes of them."""

from __future__ import annotations

import pytest

from shoal.config.load import load
from shoal.core.name_format import fill_name
from shoal.errors import UsageError


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("{date}_{time}", "20260215_120000"),
        ("{scraper}-{date}_{time}_{suffix}", "costa-rica-20260215_120000_k3f"),
        ("{suffix}", "k3f"),
        ("_{time}", "r_120000"),  # a name never begins like an option or a hidden file
    ],
)
def test_run_id_is_formed_as_its_format_says(format: str, name: str) -> None:
    assert load({"run_id_format": format}, env={}).run_id_format == format
    assert fill_name(format, date="20260215", time="120000", suffix="k3f", scraper="costa rica") == name


@pytest.mark.parametrize(
    ("setting", "format"),
    [
        ("run_id_format", "run"),
        ("run_id_format", "{date}"),
        ("run_id_format", "{time}/{suffix}"),
        ("run_id_format", "{time}{"),
        ("run_id_format", "{pid}_{time}"),
        ("worker_id_format", "{name}"),
        ("worker_id_format", "{host}"),
        ("worker_id_format", "{name.__class__}-{suffix}"),
    ],
)
def test_format_by_which_two_could_be_taken_for_one_another_or_for_a_path_is_refused(setting: str, format: str) -> None:
    with pytest.raises(UsageError, match="is not understood"):
        load({setting: format}, env={})
