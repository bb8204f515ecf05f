"""Replay: the settings under which kept pages are extracted again; nobody is asked, so nobody is spared."""

from __future__ import annotations

from dataclasses import replace

from shoal.config import Settings


def replayed(settings: Settings) -> Settings:
    asked = dict.fromkeys(("delay", "in_flight"), "--from-raw")
    return replace(
        settings,
        delay=0.0,
        rate=0.0,
        in_flight=0,
        ignore_robots=True,
        adapt=False,
        keep_raw=False,
        revalidate=False,
        retries=0,
        auth="",
        proxy="",
        sources={**settings.sources, **asked},
    )
