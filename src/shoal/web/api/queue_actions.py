"""The actions among a queue's verbs: what somebody does through a remote queue, kept by the name of the token."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.control import host_actions
from shoal.control.actions import UserActions
from shoal.core.task import LaneChange
from shoal.queue.base import Queue, TaskFilter


async def log_verb(queue: Queue, who: str, verb: str, args: list[Any], named: dict[str, Any], result: Any) -> None:
    """Keep it if it is an action; most verbs are the work itself, or look. Removals are logged elsewhere."""
    actor = UserActions(queue, who, via="queue")
    if verb == "set_run" and args[1] != "finish":
        await actor.log_action(args[1], result.name)
    elif verb in ("revive", "drop") and result:
        await actor.log_action(verb, await _run_name(queue, args[0]), count=result, **_narrowed(args, named))
    elif verb == "command_worker" and result:
        await actor.log_action(args[1] or "resume", args[0])
    elif verb == "clear_seen":
        await actor.log_action("clear seen-set", args[0], count=result)
    elif verb == "cache_clear" and result:
        await actor.log_action("clear cache", named["host"] or "all hosts", count=result)
    elif verb == "forget_seen":
        await actor.log_action("forget seen URLs", args[0], count=result)
    elif verb == "forget_failures" and result:
        await actor.log_action("forget failures", "URLs", count=result)
    elif verb == "set_lane" and _is_decision(args[0]):
        await actor.log_action(host_actions.action_name(args[0]), args[0].lane, **host_actions.change_details(args[0]))


def _is_decision(change: LaneChange) -> bool:
    """What a person decides; what workers learn from answers has a spacing or a hold of its own."""
    if change.spacing is not None:
        return change == msgspec.structs.replace(host_actions.forget_change(), lane=change.lane)
    return change.park_for is not None or change.spacing_override is not None or change.limit is not None


async def _run_name(queue: Queue, number: int) -> str:
    found = await queue.runs(before=number + 1, limit=1)
    return found[0].name if found and found[0].id == number else f"run {number}"


def _narrowed(args: list[Any], named: dict[str, Any]) -> dict[str, Any]:
    where = args[1] if len(args) > 1 else named.get("where", TaskFilter())
    return {"host": where.lane, "cause": where.cause, "url": where.url, "tasks": len(where.ids) or None}
