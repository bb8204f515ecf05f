"""What holds for all tests."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest

# Started in the background, a shell lets us ignore Ctrl-C, and every process of the tests would as well.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _logs_end_with_their_test() -> Iterator[None]:
    """A command that ran in this process left a place for logs that is closed by now."""
    yield
    root = logging.getLogger()
    for handler in [one for one in root.handlers if getattr(one, "of_shoal", False)]:
        root.removeHandler(handler)
