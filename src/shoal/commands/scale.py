"""`shoal scale`: run an autoscaler, set a number of workers, or ask the scaler that acts to do so."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence

import msgspec

from shoal import app
from shoal.commands.action_log import log_command, user_name
from shoal.config.load import Settings
from shoal.control.scaling.autoscaler import Autoscaler, scale_once
from shoal.control.scaling.scale_documents import ScaleRequest, ScaleState, write_request
from shoal.errors import UsageError
from shoal.launch.scaler import DRIVERS_HINT, Measurement, make_autoscaler, open_scaler, scale_limits
from shoal.launch.service_manager import reported_service
from shoal.launch.signals import stop_on_signals
from shoal.queue.base import Queue
from shoal.view.scale import scale_status


class SetResult(msgspec.Struct, frozen=True):
    """What became of `scale set`."""

    workers: int | None  # None: as many as it takes
    current: int | None = None  # that the driver had; None where the scaler is told, not the driver
    told_scaler: bool = False  # the one that acts does it at its next evaluation
    interval: float = 0.0


def scale_command(
    settings: Settings,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] = {},
    dry_run: bool = False,
    once: bool = False,
    on_state: Callable[[ScaleState], None],
    on_wait: Callable[[str], None],
) -> int:
    """Scale until told to stop; answers the exit status."""

    async def work() -> int:
        stop = asyncio.Event()
        async with app.opened_queue(settings) as queue:
            scaler = make_autoscaler(queue, settings, arguments=arguments, environment=environment, dry_run=dry_run)
            with stop_on_signals(stop.set):
                if not once:
                    async with reported_service() as report_ready:
                        report_ready(f"scales by {settings.scaler}")
                        await scaler.run_or_stand_by(stop, on_state, on_wait)
                    return 0
                return await _evaluate_once(scaler, stop, on_state)

    return asyncio.run(work())


async def _evaluate_once(scaler: Autoscaler, stop: asyncio.Event, on_state: Callable[[ScaleState], None]) -> int:
    seen: list[ScaleState] = []

    def finish(state: ScaleState) -> None:
        seen.append(state)
        on_state(state)
        stop.set()

    await scaler.run(stop, finish)
    return 1 if seen and seen[0].problem else 0


async def set_workers(
    queue: Queue,
    settings: Settings,
    count: int | None,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] = {},
    dry_run: bool = False,
) -> SetResult:
    """Have so many workers: by the scaler that acts, else by the driver here. None: as many as it takes again."""
    status = await scale_status(queue)
    limits = status.state.limits if status.state is not None and status.is_acting else scale_limits(settings)
    if count is not None and count > limits.maximum:
        raise UsageError(f"{count} workers are more than the maximum, {limits.maximum}", hint="--max-workers N")
    if status.is_acting or count is None:
        if not dry_run:
            await write_request(queue, ScaleRequest(count, _who(), await queue.now()))
            await log_command(queue, "scale", "workers", workers="auto" if count is None else count)
        return SetResult(count, told_scaler=status.is_acting, interval=limits.interval)
    if settings.scaler == "none":
        raise UsageError("no scaler is acting, and no driver is given", hint=f"shoal scale auto, or {DRIVERS_HINT}")
    scaler = open_scaler(settings, queue, arguments, environment)
    current = (await scaler.current()).count
    if not dry_run:
        workers = (await Measurement(queue, settings).measure()).workers
        await scale_once(queue, scaler, count, workers, settings.scale_timeout)
        if status.request.fixed is not None:  # the next scaler would go back to what was asked for before
            await write_request(queue, ScaleRequest(count, _who(), await queue.now()))
        await log_command(queue, "scale", "workers", workers=count, driver=scaler.name)
    return SetResult(count, current)


def _who() -> str:
    return f"{user_name() or 'somebody'}@{socket.gethostname()}"
