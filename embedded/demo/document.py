"""The demo as one JSON document, for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from embedded.demo.commits import Commit
from embedded.demo.options import DemoOptions
from embedded.demo.scene import Scene, ViewFigures
from embedded.demo.stage import Task
from embedded.demo.story import Step
from embedded.demo.timings import Summary
from embedded.demo.verdict import Check


def document_of(
    options: DemoOptions,
    tasks: Sequence[Task],
    scene: Scene,
    checks: Mapping[str, Check],
    url: str,
    trino_url: str | None = None,
) -> dict[str, Any]:
    """All of it; ``url`` is the server's, for as long as it stays, as is Trino's."""
    return {
        "agrees": all(check.agrees for check in checks.values()),
        "options": asdict(options),
        "checks": {name: asdict(check) for name, check in checks.items()},
        "freshness_ms": _summary(scene.freshness),
        "lookup_ms": _summary(scene.lookups),
        "traffic": {
            "seconds": round(scene.elapsed_seconds, 1),
            "messages": scene.messages,
            "messages_per_second": round(scene.messages / scene.elapsed_seconds, 1),
            "lookups": scene.lookups.count,
            "lookups_refused": scene.refused,
            "answers_checked_at_once": scene.answers_checked,
        },
        "commits": [_commit(commit) for commit in scene.commits],
        **_views(scene.views),
        "garbage": {"written": scene.garbage, "quarantined": scene.quarantined},
        "story": [_step(step) for step in scene.story],
        "tasks": [
            {"title": task.title, "seconds": _rounded(task.seconds), "note": task.note} for task in tasks
        ],
        "url": url,
        **({"trino_url": trino_url} if trino_url else {}),
    }


def _views(views: ViewFigures | None) -> dict[str, Any]:
    """Nothing where there is no Trino."""
    if views is None:
        return {}
    return {
        "views": {
            "freshness_ms": {"live_by_key": _summary(views.by_key), "live": _summary(views.live)},
            "query_ms": {
                "live_by_key": _summary(views.by_key_queries),
                "live": _summary(views.live_queries),
            },
            "answers": views.answers,
            "refused": views.refused,
        }
    }


def _step(step: Step) -> dict[str, Any]:
    """Without Trino, it says nothing of the view."""
    return {name: value for name, value in asdict(step).items() if value is not None}


def _summary(summary: Summary) -> dict[str, Any]:
    return {
        "count": summary.count,
        "p50": _rounded(summary.p50_ms),
        "p99": _rounded(summary.p99_ms),
        "max": _rounded(summary.max_ms),
    }


def _commit(commit: Commit) -> dict[str, Any]:
    return {
        "snapshot_id": str(commit.snapshot_id),
        "seam": commit.seam.to_dict(),
        "records": dict(commit.counts),
        "seconds": _rounded(commit.seconds),
    }


def _rounded(value: float | None) -> float | None:
    """JSON has no NaN."""
    return None if value is None or math.isnan(value) else round(value, 3)
