"""Lower bounds of dependencies leave out versions with known holes, and what is installed satisfies them."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REQUIREMENTS = {canonicalize_name(one.name): one for one in map(Requirement, PROJECT["dependencies"])}

HOLES = [
    ("brotli", "1.1.0", "a small body takes all memory: CVE-2025-6176"),
    ("h11", "0.14.0", "chunked bodies of others' making: CVE-2025-43859"),
    ("httptools", "0.6.1", "lengths with a space are read differently than by proxies: CVE-2024-27982"),
    ("jinja2", "3.1.5", "the sandbox can be left: CVE-2025-27516"),
    ("lxml", "5.3.0", "wheels with a libxml2 that has memory errors: CVE-2025-24928, CVE-2024-56171"),
    ("lxml", "5.3.2", "the same: CVE-2025-32414, CVE-2025-32415"),
    ("lxml", "6.0.4", "two parsers read files that a document names: CVE-2026-41066"),
    ("lxml", "6.1.0", "CVE-2026-49825, for which 6.1.3 is recommended"),
    ("pycurl", "7.45.3", "wheels with a libcurl that reads beyond a certificate: CVE-2024-7264"),
    ("pydantic", "2.3.0", "a regular expression takes for ever: CVE-2024-3772"),
    ("python-multipart", "0.0.6", "a header takes for ever: CVE-2024-24762"),
    ("python-multipart", "0.0.17", "a boundary takes for ever: CVE-2024-53981"),
    ("python-multipart", "0.0.21", "a name of a file leads elsewhere: CVE-2026-24486"),
    ("python-multipart", "0.0.25", "what comes before and after the parts takes for ever: CVE-2026-40347"),
    ("python-multipart", "0.0.26", "headers of a part without end: CVE-2026-42561"),
    ("python-multipart", "0.0.30", "four more of its parser: CVE-2026-53537 to CVE-2026-53540"),
    ("pyyaml", "5.3.1", "a document runs code: CVE-2020-14343"),
    ("starlette", "0.39.2", "fields of a form take all memory: CVE-2024-47874"),
    ("starlette", "0.47.1", "large files of a form block the loop: CVE-2025-54121"),
    ("starlette", "0.49.0", "a Range header takes for ever: CVE-2025-62727"),
    ("starlette", "1.0.0", "a Host header changes the path that is checked: CVE-2026-48710"),
    ("starlette", "1.2.1", "a path changes the host: CVE-2026-54282"),
    ("starlette", "1.3.0", "forms that are not multipart have no limits: CVE-2026-54283"),
    ("uvicorn", "0.11.6", "headers of others' making: CVE-2020-7695"),
]


@pytest.mark.parametrize(("name", "hole", "what"), HOLES)
def test_no_version_with_a_known_hole_is_admitted(name: str, hole: str, what: str) -> None:
    assert not REQUIREMENTS[canonicalize_name(name)].specifier.contains(hole), what


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_what_is_installed_is_within_the_bounds(name: str) -> None:
    requirement = REQUIREMENTS[name]
    if requirement.marker is None or requirement.marker.evaluate():
        assert requirement.specifier.contains(version(name), prereleases=True)


def test_every_dependency_has_a_lower_bound() -> None:
    everything = [*REQUIREMENTS.values(), *(Requirement(one) for extra in ("postgres", "redis", "parquet", "xlsx")
                                            for one in PROJECT["optional-dependencies"][extra])]  # fmt: skip
    assert [one.name for one in everything if not any(it.operator == ">=" for it in one.specifier)] == []


def test_nobody_is_told_to_install_a_name_that_is_not_released() -> None:
    files = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py"), *ROOT.glob("examples/**/*.*")]
    tells = re.compile(r"(?:pipx?|uv|poetry) (?:pip )?(?:tool )?(?:install|add) (?:-\S+ )*[\"']?shoal\b(?![/-])")
    found = [
        f"{file}: {match[0]}"
        for file in files
        if file.suffix != ".pyc" and (match := tells.search(file.read_text("utf-8")))
    ]
    assert len(files) > 500 and not found
