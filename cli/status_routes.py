"""The part of ``thermocline status`` that is about routes: how many tables one has, and which fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from thermocline.rules.routes.directory import Directory

__all__ = ["route_document", "shown_route"]

FAILED_SHOWN_MAX: Final = 10


def route_document(directory: Directory) -> dict[str, Any]:
    """What a route's directory knows, for JSON output."""
    failed = list(directory.failed.items())
    shown = [
        {"value": value, "reason": one.reason, "since": one.since.seam.to_dict()}
        for value, one in failed[:FAILED_SHOWN_MAX]
    ]
    return {"tables": len(directory.names), "failed": len(failed), "failures": shown}


def shown_route(entry: dict[str, Any]) -> Iterator[str]:
    """What the remark on a table says of its route, if it is a route's directory."""
    if "route" not in entry:
        return
    route = entry["route"]
    yield f"route with {route['tables']:,} tables"
    if route["failed"]:
        first = route["failures"][0]
        yield f'{route["failed"]:,} values have no table yet, such as "{first["value"]}": {first["reason"]}'
