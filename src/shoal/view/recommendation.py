"""A recommendation: what a person could do, with the command and the API call that does it."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote

import msgspec

from shoal.view.formatting import clean

RecommendationLevel = Literal["act", "watch", "good"]
LEVELS: tuple[RecommendationLevel, ...] = ("act", "watch", "good")


class RecommendedStep(msgspec.Struct, frozen=True):
    """Something to do about it."""

    words: str
    command: str = ""
    method: str = ""  # of the API
    path: str = ""
    body: dict[str, Any] | None = None


class Recommendation(msgspec.Struct, frozen=True):
    """One recommendation, and the figures it follows from."""

    kind: str  # stable: scale_up, host_decides …
    level: RecommendationLevel
    title: str
    why: str  # one sentence with numbers
    figures: dict[str, Any] = {}
    run: str = ""
    host: str = ""
    worker: str = ""
    actions: tuple[RecommendedStep, ...] = ()


def recommendation_document(advice: Recommendation) -> dict[str, Any]:
    return {
        "kind": advice.kind,
        "level": advice.level,
        "title": advice.title,
        "why": advice.why,
        "figures": advice.figures,
        "run": advice.run or None,
        "host": advice.host or None,
        "worker": advice.worker or None,
        "actions": [
            {
                "words": step.words,
                "command": step.command or None,
                "method": step.method or None,
                "path": step.path or None,
                "body": step.body,
            }
            for step in advice.actions
        ],
    }


def run_step(words: str, run: str, action: str, body: dict[str, Any] | None = None, more: str = "") -> RecommendedStep:
    command = f"shoal {action} {clean(run)}{more}"
    return RecommendedStep(words, command, "POST", f"/api/v1/runs/{quote(run, safe='')}/{action}", body)


def host_step(words: str, host: str, action: str, command: str, body: dict[str, Any] | None = None) -> RecommendedStep:
    return RecommendedStep(words, command, "POST", f"/api/v1/hosts/{quote(host, safe='')}/{action}", body)


def worker_step(words: str, worker: str, action: str) -> RecommendedStep:
    path = f"/api/v1/workers/{quote(worker, safe='')}/{action}"
    return RecommendedStep(words, f"shoal {action} {clean(worker)}", "POST", path)
