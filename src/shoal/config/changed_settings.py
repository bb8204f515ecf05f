"""Changed settings: what differs between two commands for one run, and which failures that may cure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from shoal.config.setting import Setting
from shoal.config.settings import SETTINGS, Settings


class SettingChange(NamedTuple):
    setting: Setting
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.setting.flag} is {_in_words(self.now)}, was {_in_words(self.before)}"

    @property
    def cures(self) -> str:
        """The cause of failures that the new value may not lead to any more; "" if there is none."""
        lifted = self.now > self.before if isinstance(self.now, int | float) else bool(self.now)
        return self.setting.cause if lifted else ""


def remembered_settings(settings: Settings) -> dict[str, Any]:
    """What a run remembers of a command's settings: what decides how its pages fare, without secrets."""
    values = {name: _plain(getattr(settings, name)) for name, setting in SETTINGS.items() if _is_remembered(setting)}
    return {name: value for name, value in values.items() if value != _plain(SETTINGS[name].default)}


def changed_settings(before: Mapping[str, Any], settings: Settings) -> list[SettingChange]:
    """What is set otherwise than by an earlier command, as `remembered_settings` has it."""
    now, found = remembered_settings(settings), list[SettingChange]()
    for name, setting in SETTINGS.items():
        default = _plain(setting.default)
        values = before.get(name, default), now.get(name, default)
        # A rate is a delay, too; it is named once.
        if _is_remembered(setting) and values[0] != values[1] and not (name == "delay" and "rate" in now):
            found.append(SettingChange(setting, *values))
    return found


def _is_remembered(setting: Setting) -> bool:
    is_about_pages = setting.scope == "run" or bool(setting.refuses)
    return is_about_pages and not (setting.credential or setting.at_start)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value or "none")
