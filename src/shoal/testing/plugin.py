"""A pytest plugin: `pytest_plugins = ["shoal.testing.plugin"]` in conftest.py brings the fixture saved_pages."""

from __future__ import annotations

import pytest

from shoal.testing.saved_pages import SavedPages

FOLDER = "pages"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shoal")
    group.addoption("--save-pages", action="store_true", help="Fetch pages that tests need and that are not saved.")
    parser.addini("shoal_allow_private", "Private places that --save-pages may fetch from.", default="")


@pytest.fixture
def saved_pages(request: pytest.FixtureRequest) -> SavedPages:
    """The pages saved in the folder `pages` beside the test file."""
    config = request.config
    settings = {"allow_private": private} if (private := config.getini("shoal_allow_private")) else {}
    return SavedPages(request.path.parent / FOLDER, save=config.getoption("--save-pages"), **settings)
