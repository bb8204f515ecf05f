"""Every backend agrees with the model, whatever happens."""

from __future__ import annotations

import pytest

from conformance.machine import drive
from conformance.world import model_opener, open_sqlite

MACHINES = {"model": model_opener, "sqlite": lambda: open_sqlite}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", MACHINES)
def test_any_history_leaves_the_account_right(backend: str) -> None:
    drive(MACHINES[backend], examples=60, steps=40)
