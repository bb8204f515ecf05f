"""Every rule of the suite has been seen to fail: each broken queue is caught."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from conformance import (
    broken,
    test_contract_add,
    test_contract_lanes,
    test_contract_priority,
    test_contract_reap,
    test_contract_runs,
    test_contract_settle,
)
from conformance.machine import drive
from conformance.model import ModelQueue
from conformance.world import World, model_opener

BY_THE_MACHINE = [
    broken.NoFencing,
    broken.FencedByLeaseOnly,
    broken.EarlyAcknowledgement,
]
