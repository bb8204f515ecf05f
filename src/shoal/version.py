"""The version, and how more of it is installed."""

__version__ = "0.1.0"


def install_hint(*extras: str) -> str:
    """How to install extras: from the source, for there is no release, and the name may be anybody's."""
    return f"in the folder of shoal's source: pip install '.[{','.join(extras)}]'"
