"""Queue address: what a client is opened with: URLs, a cluster file, or a Redis client of the caller's own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from shoal.config.cluster_file import ClusterConfig, cluster_from_env, cluster_settings
from shoal.config.load import Settings, load
from shoal.config.queue_token import unencrypted_note
from shoal.config.redis_client import RedisClient, RedisConnectionPool, is_redis_client, url_of_redis_client
from shoal.errors import UsageError

QueueAddress = str | list[str] | ClusterConfig | RedisClient | RedisConnectionPool


def settings_for(where: QueueAddress | None, given: Mapping[str, Any]) -> Settings:
    """The settings of whatever is opened from Python: connect, Worker, Coordinator and others.

    A URL that is given means this queue and nothing else; without one, the cluster file that SHOAL_CLUSTER
    names counts as it does for `start_cluster`.
    """
    settings = _load(where, given)
    if note := unencrypted_note(settings):
        warnings.warn(note, stacklevel=3)
    return settings


def _load(where: QueueAddress | None, given: Mapping[str, Any]) -> Settings:
    if where is None or isinstance(where, ClusterConfig):
        cluster = cluster_from_env() if where is None else where
        own = load(given)
        return own if cluster is None or own.sources.get("queue") == "--queue" else cluster_settings(cluster, own)
    if is_redis_client(where):
        rest = {name: value for name, value in given.items() if name != "namespace"}
        return load({**rest, "queue": url_of_redis_client(where, str(given.get("namespace", "")))})
    if not isinstance(where, str | list):
        raise UsageError(
            f"{where!r:.100} is not a queue",
            hint='give a URL such as "redis://host:6379/0" or a list, load_config("cluster.yaml"), or a Redis client',
        )
    return load({**given, "queue": where})
