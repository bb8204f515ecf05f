"""Folders of the programs that a worker starts: what is in use stays, what nobody owns is removed by the next."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.fetch.process_folder import ProcessFolder

KIND = "things"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path / f"shoal-{KIND}-{os.getuid()}"


def test_the_next_removes_what_the_dead_left_and_nothing_that_is_in_use(root: Path) -> None:
    first = ProcessFolder.make(KIND)
    unlocked, unfinished, without_lock = root / "1-unlocked", root / "1-unfinished", root / "1-without"
    for folder in (unlocked, unfinished, without_lock):
        folder.mkdir()
    (unlocked / "lock").touch()  # who held it is dead
    (without_lock / "profile").mkdir()  # its watch died while it removed it, lock first
    (root / "note").touch()  # nobody's folder
    second = ProcessFolder.make(KIND)
    try:
        assert {path.name for path in root.iterdir()} == {first.path.name, second.path.name, "note"}
    finally:
        second.close()
        first.close()
    assert [path.name for path in root.iterdir()] == ["note"]


def test_a_folder_of_somebody_else_is_refused(root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root.symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="somebody else"):
        ProcessFolder.make(KIND)
    assert not list(elsewhere.iterdir())
