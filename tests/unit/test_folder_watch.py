"""What ends and removes what a dead worker's browsers leave."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from wait import HANG

from shoal.fetch import folder_watch


def test_what_is_still_made_while_the_folder_is_removed_is_removed(tmp_path: Path) -> None:
    """By somebody whom nothing connects with it, as a process that is dying."""
    folder = tmp_path / "browsers"
    folder.mkdir()
    watch = subprocess.Popen(
        [sys.executable, "-I", "-S", folder_watch.__file__, str(os.getpid()), str(folder)], stdin=subprocess.PIPE
    )
    assert watch.stdin is not None

    def make() -> None:
        end = time.monotonic() + 0.2
        for number in itertools.count():
            try:
                (folder / f"profile-{number}").mkdir()
            except FileNotFoundError:
                return
            if time.monotonic() > end:
                return

    maker = threading.Thread(target=make)
    maker.start()
    watch.stdin.close()
    maker.join()
    assert watch.wait(HANG) == 0
    assert not folder.exists()
