"""`make mutants`: plants each change in a copy of the tree and says whether its tests notice."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mutants.mutant import Mutant
from mutants.planted import MUTANTS
from mutants.tree_copy import TreeCopy

TREE = Path(__file__).parents[2]
LEAST_SHARE = 0.95  # of those that apply must be caught


def main(words: Sequence[str]) -> int:
    """Only changes whose file or description has one of the words in it, all without any."""
    mutants = [
        mutant for mutant in MUTANTS if not words or any(word in f"{mutant.file} {mutant.wrong}" for word in words)
    ]
    with tempfile.TemporaryDirectory(prefix="shoal-mutants-") as folder:
        copy = TreeCopy(TREE, Path(folder))
        return check_all(copy, mutants)


def check_all(copy: TreeCopy, mutants: Sequence[Mutant]) -> int:
    """Report on each; the exit status."""
    # Tests that fail without any change would catch everything.
    broken = {tests for tests in sorted({mutant.tests for mutant in mutants}) if not copy.passes(tests)}
    verdicts = Counter[str]()
    for mutant in mutants:
        began = time.monotonic()
        verdict = "tests fail" if mutant.tests in broken else copy.check(mutant)
        verdicts[verdict] += 1
        print(f"{verdict:14} {time.monotonic() - began:4.0f} s  {mutant.file}: {mutant.wrong}", flush=True)
    for tests in sorted(broken):
        print(f"fails without any change: {tests}")
    caught, survived, stale = verdicts["caught"], verdicts["survived"], verdicts["does not apply"]
    print(f"{caught} caught, {survived} survived, {stale} do not apply any more")
    return int(bool(broken or stale) or caught < LEAST_SHARE * (caught + survived))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="mutants", description=main.__doc__)
    parser.add_argument("words", nargs="*")
    sys.exit(main(parser.parse_args().words))
