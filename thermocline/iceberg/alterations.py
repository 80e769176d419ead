"""Notes of alterations in a table's properties: which version of its definition changed what, and when."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

__all__ = ["ALTERATIONS_PROPERTY", "NotedAlteration", "alterations_of", "with_alteration"]

ALTERATIONS_PROPERTY: Final = "thermocline.alterations"
ENTRIES_MAX: Final = 50
BYTES_MAX: Final = 16 << 10
"""The property is copied into each metadata file; beyond this, the oldest notes are dropped."""
CHANGES_MAX: Final = 50
"""Of one alteration, such as of a table that gains a hundred columns."""


@dataclass(frozen=True, slots=True)
class NotedAlteration:
    """One alteration. ``version`` is that of the definition since then; ``changes`` are sentences for people.

    ``batch_id`` is that of its snapshot.
    """

    version: int
    at_ms: int
    batch_id: str
    changes: tuple[str, ...]


def with_alteration(properties: Mapping[str, str], new: NotedAlteration) -> dict[str, str]:
    """What the table's properties say of alterations with one more; old ones dropped beyond a bound."""
    changes = new.changes
    if len(changes) > CHANGES_MAX:
        changes = (*changes[:CHANGES_MAX], f"and {len(changes) - CHANGES_MAX} changes more")
    entry = asdict(new) | {"changes": changes}
    kept = [*map(asdict, alterations_of(properties)), entry][-ENTRIES_MAX:]
    while len(kept) > 1 and len(_text_of(kept)) > BYTES_MAX:
        del kept[0]
    return {ALTERATIONS_PROPERTY: _text_of(kept)}


def alterations_of(properties: Mapping[str, str]) -> tuple[NotedAlteration, ...]:
    """Those that a table's properties tell, the oldest first; what is damaged is left out."""
    found: list[NotedAlteration] = []
    with suppress(ValueError, TypeError, KeyError):
        for one in json.loads(properties.get(ALTERATIONS_PROPERTY, "[]")):
            changes = tuple(map(str, one["changes"]))
            found.append(
                NotedAlteration(int(one["version"]), int(one["at_ms"]), str(one["batch_id"]), changes)
            )
    return tuple(found)


def _text_of(entries: Sequence[dict[str, Any]]) -> str:
    return json.dumps(entries, separators=(",", ":"))
