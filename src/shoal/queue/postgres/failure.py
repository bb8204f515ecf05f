"""Failure: the one mapping from the driver's errors to ours."""

from __future__ import annotations

import asyncpg

from shoal.errors import ActionRequired, QueueFull, QueueReadOnly, QueueRefused, QueueUnavailable

RETRYABLE = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
# The session or the server went away; what was asked for may or may not have happened.
CONNECTION_ERRORS = (
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.PostgresConnectionError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
PERMANENT_CLASSES = ("22", "42", "P0", "XX")  # classes of SQLSTATE that asking again does not heal
OTHER_VERSION_HINT = "its tables may be of another version of shoal: see `shoal doctor`, or take another namespace"
ALL_ERRORS = (asyncpg.PostgresError, *CONNECTION_ERRORS)


def translate_error(error: BaseException, place: str) -> ActionRequired:
    message = str(error).strip() or type(error).__name__
    if isinstance(error, asyncpg.DiskFullError):
        return QueueFull(f"no space left on the disk of {place}", hint="free some space and continue; nothing is lost")
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return QueueReadOnly(
            f"{place} cannot be written ({message})",
            hint="it may be a standby: name the primary server in the queue's URL",
        )
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return QueueReadOnly(
            f"{place} cannot be written ({message})",
            hint="give this user the right to create and use the schema: GRANT CREATE ON DATABASE … TO …",
        )
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return QueueRefused(
            f"{place} refuses this user ({message})", hint="check the user and password in the queue's URL"
        )
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return QueueRefused(f"{place}: {message}", hint="create it (createdb), or name another in the URL")
    if isinstance(error, asyncpg.TooManyConnectionsError):
        return QueueUnavailable(
            f"{place} takes no more connections ({message})",
            hint="raise max_connections, or give each process fewer with ?connections=1 in the URL",
        )
    if isinstance(error, CONNECTION_ERRORS):
        return QueueUnavailable(
            f"{place} cannot be reached ({message})", hint="check that the server runs; nothing is lost"
        )
    if (getattr(error, "sqlstate", None) or "").startswith(PERMANENT_CLASSES):
        return QueueRefused(f"{place} does not understand us ({message})", hint=OTHER_VERSION_HINT)
    return QueueUnavailable(f"{place}: {message}", hint="see `shoal doctor`")
