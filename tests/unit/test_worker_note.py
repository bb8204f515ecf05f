"""The note of a worker: what it was executing, readable when it is dead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from shoal.worker.note import LEASES, Note, dead_notes, discard, is_alive, read

DIES = """
import os, sys
from pathlib import Path
from shoal.worker.note import Note
note = Note.create(Path(sys.argv[1]), "w-1")
note.hold([11, 12])
note.count(3)
note.enter(42, 12)
os.kill(os.getpid(), 9)
"""


def test_note_tells_what_a_killed_worker_was_executing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False)
    assert dead_notes(tmp_path) == {"w-1": (42,)}
    seen = read(tmp_path / "w-1")
    assert seen is not None
    assert (seen.task, seen.lease, seen.pages, seen.leases) == (42, 12, 3, (11, 12))
    assert seen.seconds() > 0
    discard(tmp_path / "w-1")
    assert not dead_notes(tmp_path)


def test_note_of_a_living_worker_is_not_taken_for_dead(tmp_path: Path) -> None:
    note = Note.create(tmp_path, "w-1")
    note.enter(1, 2)
    assert is_alive(tmp_path / "w-1")
    assert not dead_notes(tmp_path)
    note.close()
    assert read(tmp_path / "w-1") is None


def test_worker_between_two_steps_executes_nothing(tmp_path: Path) -> None:
    note = Note.unwritten()
    note.enter(1, 2)
    assert note.seen().task == 1
    note.leave()
    assert note.seen().task == 0
    assert note.seen().seconds() == 0


def test_last_words_and_leases_are_cut_to_the_room_there_is() -> None:
    note = Note.unwritten()
    note.last_words("é" * 5000)
    note.hold(range(2 * LEASES))
    seen = note.seen()
    assert seen.words.startswith("ééé")
    assert seen.leases == tuple(range(LEASES, 2 * LEASES))


def test_folder_that_does_not_exist_has_no_dead(tmp_path: Path) -> None:
    assert dead_notes(tmp_path / "none") == {}
