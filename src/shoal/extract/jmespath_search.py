"""JMESPath: what a path finds in a value."""

from __future__ import annotations

from typing import Any

from shoal.errors import GiveUp, UsageError


def search_jmespath(path: str, value: Any) -> Any:
    """What a JMESPath finds in a value."""
    import jmespath  # late: few handlers need it

    try:
        return jmespath.search(path, value)
    except jmespath.exceptions.JMESPathError as error:
        said = " ".join(str(error).split())
        hint = "A path looks like items[0].name or items[].name."
        raise UsageError(f"cannot use the JMESPath {path!r}: {said}", hint=hint) from error
    except RecursionError as error:
        raise GiveUp("too_complex", f"the JSON is too deep for the path {path!r}") from error
