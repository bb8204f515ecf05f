"""Cured failures: pages of a finished run that failed because of settings which are others now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shoal.config.changed_settings import SettingChange, changed_settings
from shoal.config.load import Settings
from shoal.core.lane import host_of_lane
from shoal.core.run import Run
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.queue.base import Queue, TaskFilter
from shoal.runs.identity import begin_seeding
from shoal.runs.list_reader import load_position, position_path

MAX_GROUPS = 100_000
REVIVE_BATCH = 10_000


def changes_since_last_time(run: Run, settings: Settings) -> list[SettingChange]:
    """What is set otherwise than by the last command that worked on the list of a run."""
    position = load_position(position_path(settings.state_folder, run), run)
    return [] if position is None or position.settings is None else changed_settings(position.settings, settings)


async def revive_cured(queue: Queue, run: Run, settings: Settings, changes: Sequence[SettingChange]) -> dict[str, int]:
    """Back to ready with what may succeed now; how many pages, by the flag that makes the difference."""
    flags = {change.cures: change.setting.flag for change in changes if change.cures}
    allowed, revived = PrivateNetworkPolicy.parse(settings.allow_private), Counter[str]()
    for group in await queue.dead_groups(run.id, limit=MAX_GROUPS) if flags else ():
        if group.cause not in flags:
            continue
        if group.cause == "blocked.private" and not allowed.covers(host_of_lane(group.lane)):
            continue
        if not revived:  # marked first: a run without work and without this mark is finished by the next who looks
            await begin_seeding(queue, run.name)
        where = TaskFilter(lane=group.lane, cause=group.cause)
        while number := await queue.revive(run.id, where, limit=REVIVE_BATCH):
            revived[flags[group.cause]] += number
    return dict(revived)
