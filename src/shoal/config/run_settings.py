"""Run settings: which settings go with a run to every worker, and which stay each machine's own.

What decides how a site is treated and what is taken from it is the run's. Where the state is, what this
machine can bear and what it may reach is the machine's: nobody who submits a run can open a worker's
private network, name its files or learn its secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shoal.config.load import SETTINGS, Settings, with_defaults
from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.logs import redact

SETTINGS_KEY = "settings"  # of a run's spec

RUN_SETTINGS = frozenset(name for name, setting in SETTINGS.items() if setting.scope == "run")


def settings_to_spec(
    settings: Settings, *, secret: bool = False, code: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The run's settings that somebody gave, as plain values for its spec.

    What would put a secret into the queue is refused; with `secret` it is left out instead, for runs
    that need not travel, and so is what the scraper's code says, which workers have themselves.
    """
    spec: dict[str, Any] = {}
    for name in sorted(RUN_SETTINGS & settings.sources.keys()):
        value = getattr(settings, name)
        if _is_secret(name, value):
            if secret or (code and name in code and SETTINGS[name].read(code[name], name) == value):
                continue
            raise UsageError(_secret_problem(name, value), hint=_secret_hint(name))
        spec[name] = list(value) if isinstance(value, tuple) else value
    return spec


def _is_secret(name: str, value: object) -> bool:
    if name == "header" and isinstance(value, tuple):
        return any(_is_secret_header(line) for line in value)
    # A login is the name of a secret; whatever else it holds is one itself.
    if name == "auth":
        return isinstance(value, str) and (":" in value or " " in value)
    return name == "proxy" and isinstance(value, str) and "://" in value


def _secret_problem(name: str, value: object) -> str:
    if name == "proxy" and redact(value) == value:
        return "--proxy is a URL; workers elsewhere use their own"
    return f"{SETTINGS[name].flag} holds a secret, and settings of a run are stored in the queue"


def _is_secret_header(line: str) -> bool:
    name, _, value = line.partition(":")
    pair = (name.strip(), value.strip())
    return bool(redact(pair) != list(pair))


def _secret_hint(name: str) -> str:
    if name == "header":
        return "--auth NAME, with NAME in [secrets] of shoal.toml on every machine with workers"
    return f"{SETTINGS[name].flag} NAME, with NAME in [secrets] of shoal.toml on every machine with workers"


def settings_for_run(own: Settings, run: Run) -> Settings:
    """A worker's settings for one run: its own flags, then the run's, then whatever else it was given."""
    given = run.spec.get(SETTINGS_KEY)
    if not isinstance(given, dict) or not given:
        return own
    spec = {name: value for name, value in given.items() if name in RUN_SETTINGS}
    if spec.keys() & {"delay", "rate"}:
        spec = _without_derived_delay(spec)
    flags = {name for name, source in own.sources.items() if source.startswith("--")}
    if flags & {"delay", "rate"}:
        flags |= {"delay", "rate"}
    kept = {name: source for name, source in own.sources.items() if name in flags or name not in spec}
    if spec.keys() & {"delay", "rate"} and not flags & {"delay", "rate"}:
        kept.pop("delay", None)
        kept.pop("rate", None)
    wanted = {name: value for name, value in spec.items() if name not in flags}
    return _with_untrusted_defaults(replace(own, sources=kept), wanted, f"run {run.name}")


def settings_for_template(settings: Settings, template: Mapping[str, Any], owner: str) -> Settings:
    """A worker's settings for a run with a template, which came with the queue as the run itself did."""
    return _with_untrusted_defaults(
        settings, {name: it for name, it in template.items() if name in RUN_SETTINGS}, owner
    )


def _with_untrusted_defaults(settings: Settings, values: Mapping[str, Any], owner: str) -> Settings:
    """The same with values below it that somebody else chose: a proxy among them must be one of ours."""
    proxy = "" if "proxy" in settings.sources else values.get("proxy", "")
    if proxy and str(proxy).lower() not in settings.secrets:
        raise UsageError(
            f"{owner} asks for a proxy that this machine does not have",
            hint="name it in [secrets] of shoal.toml here, or give this worker its own --proxy",
        )
    return _cap_limits(settings, with_defaults(settings, values, owner))


def _cap_limits(own: Settings, asked: Settings) -> Settings:
    """With limits no higher than this machine can bear: what somebody else asked for must not use it up."""
    above: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        wanted = getattr(asked, name)
        if setting.ceiling is None or wanted is None:
            continue
        most = max(getattr(own, name) or 0, setting.ceiling(own))
        if wanted > most:
            above[name] = most
    return replace(asked, **above) if above else asked


def _without_derived_delay(spec: dict[str, Any]) -> dict[str, Any]:
    """A rate and a delay say the same; the rate is what was typed."""
    return {name: value for name, value in spec.items() if name != "delay"} if "rate" in spec else spec
