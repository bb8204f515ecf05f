"""The fixture saved_pages, in a test run of its own against a real site."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from shell_user import ShellUser
from wait import HANG

TEST = """
def test_a_book(saved_pages):
    page = saved_pages.page("URL")
    assert page.css("h1::text").get() and page.status == 200

def test_gone(saved_pages):
    assert saved_pages.page("URL" + "nowhere").status == 404
"""


def test_the_fixture_fetches_once_when_told_to_and_replays_ever_after(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["shoal.testing.plugin"]\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\nshoal_allow_private = 127.0.0.0/8\n")
    test = tmp_path / "test_books.py"

    def tested(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(test)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANG)

    with ShellUser(tmp_path, products=1) as user:
        test.write_text(TEST.replace("URL", user.url.rstrip("/") + user.site.site.product_paths()[0]))
        before = tested()
        assert before.returncode == 1 and "pytest --save-pages" in before.stdout, before.stdout
        saved = tested("--save-pages")
        assert saved.returncode == 0, saved.stdout
    again = tested()
    assert again.returncode == 0, again.stdout
    assert len(list((tmp_path / "pages").iterdir())) == 4
    assert not (tmp_path / ".shoal").exists()
