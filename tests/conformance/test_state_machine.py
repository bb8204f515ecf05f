"""Every backend agrees with the model, whatever happens."""

from __future__ import annotations

import pytest

from conformance.machine import drive
from conformance.world import backends, model_opener

MACHINES = {name: lambda opener=opener: opener for name, opener in backends().items()}
MACHINES["model"] = model_opener  # a new one for every history


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", MACHINES)
def test_any_history_leaves_the_account_right(backend: str) -> None:
    drive(MACHINES[backend], examples=60, steps=40)
