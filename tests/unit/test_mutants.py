"""`make mutants` on a small tree: what is caught, what survives, and what does not apply any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants.__main__ import check_all
from mutants.mutant import Mutant
from mutants.planted import MUTANTS
from mutants.tree_copy import TreeCopy, Verdict

SOURCE = "def limit() -> int:\n    return 5\n\n\ndef other() -> int:\n    return 7\n"
TEST = """import sys
sys.path.insert(0, "src/shoal")
import part
def test_limit():
    assert part.limit() == 5
"""


@pytest.fixture
def copy(tmp_path: Path) -> TreeCopy:
    tree = tmp_path / "from"
    (tree / "src/shoal").mkdir(parents=True)
    (tree / "tests").mkdir()
    (tree / "src/shoal/part.py").write_text(SOURCE)
    (tree / "tests/test_part.py").write_text(TEST)
    return TreeCopy(tree, tmp_path)


CAUGHT = Mutant("the limit is off", "part.py", "return 5", "return 6", "test_part.py")
SURVIVES = Mutant("nobody looks at it", "part.py", "return 7", "return 8", "test_part.py")
GONE = Mutant("the line has changed", "part.py", "return 9", "return 8", "test_part.py")


def test_a_change_is_caught_survives_or_does_not_apply(copy: TreeCopy) -> None:
    assert [copy.check(mutant) for mutant in (CAUGHT, SURVIVES)] == ["caught", "survived"], "each is taken back"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("part.py", "return 9", "return 8"),  # is not there
        ("part.py", "return", "yield"),  # is there twice
        ("part.py", "return 5", "return ("),  # is no Python any more
        ("part.py", "return 5", "return 5"),
        ("none.py", "return 5", "return 6"),
    ],
)
def test_a_change_that_cannot_be_planted_as_meant_does_not_apply(copy: TreeCopy, file: str, old: str, new: str) -> None:
    assert copy.check(Mutant("", file, old, new, "test_part.py")) == "does not apply"


class Decided:
    """A copy that says of each change what it is told to."""

    def passes(self, tests: str) -> bool:
        return tests != "test_bad.py"

    def check(self, mutant: Mutant) -> Verdict:
        return {"return 5": "caught", "return 7": "survived"}.get(mutant.old, "does not apply")  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("mutants", "status"),
    [
        ([CAUGHT], 0),
        ([CAUGHT] * 19 + [SURVIVES], 0),
        ([CAUGHT] * 18 + [SURVIVES], 1),
        ([CAUGHT] * 30 + [GONE], 1),
        ([Mutant("", "part.py", "return 5", "return 6", "test_bad.py")], 1),
    ],
)
def test_the_exit_status_says_whether_all_is_well(mutants: list[Mutant], status: int) -> None:
    assert check_all(Decided(), mutants) == status  # type: ignore[arg-type]


def test_planted_changes_are_told_apart_and_name_tests_that_exist() -> None:
    tests = Path(__file__).parents[1]
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)
    assert [
        word for mutant in MUTANTS for word in mutant.tests.split() if not (tests / word.partition("::")[0]).exists()
    ] == []


def test_every_planted_change_still_applies() -> None:
    """A change of the source takes its planted mistakes along; else only `make mutants` would tell, hours later."""
    source = Path(__file__).parents[2] / "src" / "shoal"
    assert [
        f"{mutant.file}: {mutant.wrong}"
        for mutant in MUTANTS
        if (source / mutant.file).read_text(encoding="utf-8").count(mutant.old) != 1
    ] == []
