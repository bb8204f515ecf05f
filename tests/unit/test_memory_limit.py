"""The memory that a page may take is what the process has beside everything else that makes it bigger."""

from __future__ import annotations

import pytest

from shoal.extract import memory_limit


def test_what_else_has_grown_is_seen_before_the_next_page(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [100]
    monkeypatch.setattr(memory_limit, "_used", lambda: used[0])
    monkeypatch.setattr(memory_limit, "_measured", 0)
    assert memory_limit._recently_used() == 100
    used[0] = 200
    assert memory_limit._recently_used() == 100  # looked at now and then only
    memory_limit.measure_again()
    assert memory_limit._recently_used() == 200
