"""The signals that ask a process to stop, handled for as long as something runs in its event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stop_on_signals(stop: Callable[[], None], *, guest: bool = False) -> Iterator[None]:
    """Call `stop` on SIGTERM and Ctrl-C.

    guest: the event loop is another program's. What it does about signals is left alone, and SIGTERM is
    taken only where nobody else does, and given back in the end.
    """
    loop = asyncio.get_running_loop()
    numbers = _unclaimed() if guest else (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        if guest:
            for number in numbers:
                loop.remove_signal_handler(number)


def _unclaimed() -> tuple[signal.Signals, ...]:
    """Ctrl-C is never among them: asyncio.run cancels its task for it, and that stops us, too."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    return (signal.SIGTERM,) if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else ()
