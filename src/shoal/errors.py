"""Every error shoal raises, in one tree. The first split says what the reader must do.

    ShoalError
    ├── Retry                 the task may succeed later; the retry policy decides when
    │   └── FetchFailed       (retryable causes: dns, connect, timeout.*, http.5xx …)
    │       ├── ProxyFailed   the proxy failed, before the site was asked
    │       └── StepFailed    the page is there, and a step on it cannot be taken
    ├── BrowserNeeded         the page is fetched again, by a browser
    ├── GiveUp                the task will never succeed as it stands
    │   └── FetchRefused      (final causes: http.404, too_large, blocked.*, redirects …)
    └── ActionRequired        the user must do something; the message says what
        ├── UsageError        a wrong flag, file, pattern or name            exit 2
        │   ├── InvalidUrl    not a URL that can be fetched
        │   └── OutputTaken   the output file belongs to something else
        ├── RunBusy           another process owns this run right now        exit 2
        ├── QueueUnavailable  the queue cannot be reached or is locked       exit 1
        ├── QueueFull         no space left where the queue is kept          exit 1
        ├── QueueReadOnly     the queue cannot be written                    exit 1
        ├── QueueRefused      wrong version, network file system, bad URL    exit 1
        ├── StoreUnavailable  the store of results cannot be reached         exit 1
        ├── StoreRefused      the store of results is not what it should be  exit 1
        └── NotBalanced       the counters of a run do not add up            exit 1

A `cause` is a short stable word ("http.404", "timeout.total"); people group and filter by it.
"""

from __future__ import annotations


class ShoalError(Exception):
    """Base class of every error that shoal raises."""

    exit_code = 1


class Retry(ShoalError):
    """A failure of one task that time may heal."""

    def __init__(self, cause: str, message: str = "", *, after: float | None = None) -> None:
        super().__init__(message or cause)
        self.cause = cause
        self.after = after  # seconds the other side asked us to wait, if it did


class FetchFailed(Retry):
    """The exchange with the server failed in a way that may pass."""

    transferred = 0  # bytes, until then


class ProxyFailed(FetchFailed):
    """A proxy failed itself: the site was not asked."""


class StepFailed(FetchFailed):
    """A page was loaded, and is not such that a step can be taken on it."""


class BrowserNeeded(ShoalError):
    """A handler cannot read its page as plain HTTP gave it."""


class GiveUp(ShoalError):
    """A failure of one task that no retry will heal."""

    def __init__(self, cause: str, message: str = "") -> None:
        super().__init__(message or cause)
        self.cause = cause


class FetchRefused(GiveUp):
    """The exchange was refused, by the server for good or by our own rules."""

    transferred = 0  # bytes, until then


class ActionRequired(ShoalError):
    """An error that the user must resolve; `hint` says how."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(ActionRequired):
    exit_code = 2


class InvalidUrl(UsageError):
    pass


class RunNameTaken(UsageError):
    pass


class OutputTaken(UsageError):
    is_replaceable = False  # the file is as another run wrote it


class RunBusy(ActionRequired):
    exit_code = 2


class QueueUnavailable(ActionRequired):
    pass


class QueueFull(ActionRequired):
    pass


class QueueReadOnly(ActionRequired):
    pass


class QueueRefused(ActionRequired):
    pass


class StoreUnavailable(ActionRequired):
    pass


class StoreRefused(ActionRequired):
    pass


class NotBalanced(ActionRequired):
    pass
