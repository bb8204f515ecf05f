"""Failure: the one mapping from the driver's errors to ours."""

from __future__ import annotations

import asyncpg

from shoal.errors import Act, QueueFull, QueueReadOnly, QueueRefused, QueueUnavailable

AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
# The session or the server went away; what was asked for may or may not have happened.
GONE = (
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
MISTAKEN = ("22", "42", "P0", "XX")  # classes of SQLSTATE that asking again does not heal
STRANGE = "its tables may be of another version of shoal: see `shoal doctor`, or take another namespace"
ALL = (asyncpg.PostgresError, *GONE)


def translated(error: BaseException, place: str) -> Act:
    said = str(error).strip() or type(error).__name__
    if isinstance(error, asyncpg.DiskFullError):
        return QueueFull(
            f"no space left on the disk of {place}", hint="free some space and go on; nothing is lost"
        )
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return QueueReadOnly(
            f"{place} cannot be written ({said})",
            hint="it may be a standby: name the primary server in the queue's address",
        )
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return QueueReadOnly(
            f"{place} cannot be written ({said})",
            hint="give this user the right to create and use the schema: GRANT CREATE ON DATABASE … TO …",
        )
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return QueueRefused(
            f"{place} refuses this user ({said})", hint="check the user and password in the queue's address"
        )
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return QueueRefused(f"{place}: {said}", hint="create it (createdb), or name another in the address")
    if isinstance(error, asyncpg.TooManyConnectionsError):
        return QueueUnavailable(
            f"{place} takes no more connections ({said})",
            hint="raise max_connections, or give each process fewer with ?connections=1 in the address",
        )
    if isinstance(error, GONE):
        return QueueUnavailable(
            f"{place} cannot be reached ({said})", hint="check that the server runs; nothing is lost"
        )
    if (getattr(error, "sqlstate", None) or "").startswith(MISTAKEN):
        return QueueRefused(f"{place} does not understand us ({said})", hint=STRANGE)
    return QueueUnavailable(f"{place}: {said}", hint="see `shoal doctor`")
