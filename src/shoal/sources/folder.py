"""FolderSource: the saved pages of a folder, each a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from shoal.core.saved_page import SUFFIXES, url_of_file
from shoal.errors import ActionRequired
from shoal.sources.base import Unit, UrlEntry

LEADS_OUT = "a link that leads out of the folder"


class FolderSource:
    """In the order of their names, folder by folder; links to other folders are not entered."""

    unit: Unit = "file"
    columns: tuple[str, ...] = ("file",)

    def __init__(self, folder: Path) -> None:
        self.name = f"{folder.name or folder}{os.sep}"
        self._root = folder.resolve()

    def __iter__(self) -> Iterator[UrlEntry]:
        for number, path in enumerate(page_files(self._root), 1):
            name = str(path.relative_to(self._root))
            shown = name.encode("utf-8", "replace").decode()
            is_inside = not path.is_symlink() or path.resolve().is_relative_to(self._root)
            yield UrlEntry(number, url_of_file(name), {"file": shown}, "" if is_inside else LEADS_OUT)

    def close(self) -> None:
        pass


def page_files(root: Path) -> Iterator[Path]:
    """Every file below a folder that is named like a page."""
    waiting = [iter(_entries(root))]
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
        elif entry.is_dir(follow_symlinks=False):
            waiting.append(iter(_entries(Path(entry.path))))
        elif entry.name.lower().endswith(SUFFIXES) and not entry.is_dir():
            yield Path(entry.path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise ActionRequired(f"{folder} cannot be read: {error.strerror}", hint="check its owner and mode") from error
