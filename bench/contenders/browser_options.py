"""What the contenders with a browser share: which URLs, which program, and what is not loaded."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

BLOCKED = ("image", "media", "font")
PAGES_AT_ONCE = 4
FLAGS = ["--no-sandbox"] if os.geteuid() == 0 else []


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("urls", help="a file with a URL per line")
    parser.add_argument("out")
    parser.add_argument("--browser", required=True)
    return parser.parse_args()


def urls_of(args: argparse.Namespace) -> list[str]:
    return Path(args.urls).read_text().split()
