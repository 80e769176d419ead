"""Notes that endpoints make of a request for the audit log: which entities, and what the answer was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.serving.cold.reader import Entity

__all__ = ["NOTED", "VERBS", "Noted", "noted_in"]

NOTED: Final = "thermocline.noted"
"""Where a request's scope has its `Noted`."""
VERBS: Final[Mapping[str, str]] = {
    "rows": "lookup",
    "rows_explained": "lookup",
    "batch": "batch",
    "extract": "extract",
    "refused": "refused",
    "describe": "describe",
    "list_tables": "describe",
    "status": "status",
    "start_extract": "job-start",
    "extract_jobs": "job-read",
    "extract_job": "job-read",
    "extract_file": "job-read",
    "cancel_extract": "job-cancel",
    "load": "catalog-load",
    "tables": "catalog-list",
    "namespaces": "catalog-list",
    "namespace": "catalog-list",
}
"""Of routes that read or change data, by their names."""


@dataclass(slots=True)
class Noted:
    """To be filled in as it becomes known. ``read_point`` is JSON; ``outcome`` the code of an error.

    ``table`` is one that the path does not name.
    """

    verb: str | None = None
    table: str | None = None
    definition: LiveTable | None = None
    entities: Sequence[Entity] = ()
    read_point: bytes | None = None
    rows: int | None = None
    outcome: str | None = None


def noted_in(scope: Mapping[str, Any]) -> Noted:
    """That of a request."""
    found: Noted = scope[NOTED]
    return found
