"""The crash note of a worker: what it was executing, readable after its death."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from shoal.worker.pool.crash_note import MAX_LEASES, CrashNote, delete_note, find_dead_workers, is_alive, read_note

DIES = """
import os, sys
from pathlib import Path
from shoal.worker.pool.crash_note import CrashNote
note = CrashNote.create(Path(sys.argv[1]), "w-1")
note.write_leases([11, 12])
note.add_done(3)
note.enter(42, 12)
os.kill(os.getpid(), 9)
"""


def test_note_tells_what_a_killed_worker_was_executing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False)
    assert find_dead_workers(tmp_path) == {"w-1": (42,)}
    snapshot = read_note(tmp_path / "w-1")
    assert snapshot is not None
    assert (snapshot.task, snapshot.lease, snapshot.pages, snapshot.leases) == (42, 12, 3, (11, 12))
    assert snapshot.seconds() > 0
    delete_note(tmp_path / "w-1")
    assert not find_dead_workers(tmp_path)


def test_note_of_a_living_worker_is_not_taken_for_dead(tmp_path: Path) -> None:
    note = CrashNote.create(tmp_path, "w-1")
    note.enter(1, 2)
    assert is_alive(tmp_path / "w-1")
    assert not find_dead_workers(tmp_path)
    note.close()
    assert read_note(tmp_path / "w-1") is None


def test_worker_between_two_steps_executes_nothing(tmp_path: Path) -> None:
    note = CrashNote.in_memory()
    note.enter(1, 2)
    assert note.snapshot().task == 1
    note.leave()
    assert note.snapshot().task == 0
    assert note.snapshot().seconds() == 0


def test_last_words_and_leases_are_cut_to_the_room_there_is() -> None:
    note = CrashNote.in_memory()
    note.write_exit_message("é" * 5000)
    note.write_leases(range(2 * MAX_LEASES))
    snapshot = note.snapshot()
    assert snapshot.exit_message.startswith("ééé")
    assert snapshot.leases == tuple(range(MAX_LEASES, 2 * MAX_LEASES))


def test_folder_that_does_not_exist_has_no_dead(tmp_path: Path) -> None:
    assert find_dead_workers(tmp_path / "none") == {}
