"""Cluster: starts the roles that a cluster file describes.

A worker works on what is in the queue. A coordinator is a server: it shows the queue and sees to it,
gives back what dead workers held, finishes runs, fires schedules and carries records to the store. Workers
see to the queue, too, so no coordinator is needed and any number may run.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from os import PathLike
from typing import Any, Literal

from shoal.commands.worker import work, worker_command
from shoal.commands.worker_ui import WorkerUi
from shoal.config.cluster_file import ClusterConfig, cluster_settings, load_config
from shoal.config.load import Settings
from shoal.errors import UsageError

Role = Literal["coordinator", "worker"]
ROLES: tuple[str, ...] = ("coordinator", "worker")


def start_cluster(
    config: ClusterConfig | str | PathLike[str],
    role: Role | str = "worker",
    *,
    settings: Settings | None = None,
    ui: WorkerUi | None = None,
) -> Any:
    """Be a part of a cluster until told to stop (SIGTERM, Ctrl-C); answers the exit status.

    Inside a running event loop it is awaited: `await start_cluster(config)`, and cancelling that stops it.

    settings: what was given beside the file, which the file does not overrule; the environment unless given.
    """
    if role not in ROLES:
        raise UsageError(f"there is no role {role}", hint="coordinator or worker")
    cluster = config if isinstance(config, ClusterConfig) else load_config(config)
    whole = cluster_settings(cluster, settings)
    if role == "worker":
        command = work if _in_event_loop() else worker_command
        return command(whole, targets=cluster.scrapers, ui=ui)
    from shoal.web.server import serve, serve_command  # late: workers never need it

    whole = replace(whole, listen=f"{f'[{cluster.host}]' if ':' in cluster.host else cluster.host}:{cluster.port}")
    say = ui.message if ui else _say
    return (serve if _in_event_loop() else serve_command)(whole, say=say, role="coordinator")


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
