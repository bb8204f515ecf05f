"""What holds for all tests."""

from __future__ import annotations

import signal

# Started in the background, a shell lets us ignore Ctrl-C, and every process of the tests would as well.
signal.signal(signal.SIGINT, signal.default_int_handler)
