"""Cluster: starts the roles that a cluster file describes.

A worker works on what is in the queue. A coordinator is a control room: it shows the queue and sees to it,
gives back what dead workers held, finishes runs, fires schedules and carries records to the store. Workers
see to the queue, too, so no coordinator is needed and any number may run.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from os import PathLike
from typing import Literal

from shoal.clusterfile import ClusterConfig, cluster_settings, load_config
from shoal.config import Settings
from shoal.errors import Usage
from shoal.fleetworker import WorkerUi, worker_command

Role = Literal["coordinator", "worker"]
ROLES: tuple[str, ...] = ("coordinator", "worker")


def start_cluster(
    config: ClusterConfig | str | PathLike[str],
    role: Role | str = "worker",
    *,
    settings: Settings | None = None,
    ui: WorkerUi | None = None,
) -> int:
    """Be a part of a cluster until told to stop (SIGTERM, Ctrl-C); answers the exit status.

    settings: what was given beside the file, which the file does not overrule; the environment unless given.
    """
    if role not in ROLES:
        raise Usage(f"there is no role {role}", hint="coordinator or worker")
    cluster = config if isinstance(config, ClusterConfig) else load_config(config)
    whole = cluster_settings(cluster, settings)
    if role == "worker":
        return worker_command(whole, targets=cluster.scrapers, ui=ui)
    from shoal.web.server import serve_command  # late: workers never need it

    listen = f"{f'[{cluster.host}]' if ':' in cluster.host else cluster.host}:{cluster.port}"
    return serve_command(replace(whole, listen=listen), say=ui.message if ui else _say, role="coordinator")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
