"""Replay: the settings under which saved pages are extracted again; no site is asked, so none is spared."""

from __future__ import annotations

from dataclasses import replace

from shoal.config.setting import UNCHANGED
from shoal.config.settings import SETTINGS, Settings


def settings_for_replay(settings: Settings) -> Settings:
    values = {name: it.replay for name, it in SETTINGS.items() if it.replay is not UNCHANGED}
    # Given, so that no scraper's own pace or routes take their place.
    given = dict.fromkeys(("delay", "in_flight", "routes"), "--from-raw")
    return replace(settings, **values, sources={**settings.sources, **given})
