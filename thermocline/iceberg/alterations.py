"""Notes of alterations in a table's properties: which version of its definition changed what, and when."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

__all__ = [
    "ALTERATIONS_PROPERTY",
    "NotedAlteration",
    "NotedCause",
    "alterations_of",
    "last_by_contract",
    "with_alteration",
]

ALTERATIONS_PROPERTY: Final = "thermocline.alterations"
ENTRIES_MAX: Final = 50
BYTES_MAX: Final = 16 << 10
"""The property is copied into each metadata file; beyond this, the oldest notes are dropped."""
CHANGES_MAX: Final = 50
"""Of one alteration, such as of a table that gains a hundred columns."""


@dataclass(frozen=True, slots=True)
class NotedCause:
    """What made a table take up changes by its contract: a schema of its writers, or a sample of values.

    ``record`` is the first one that named the ``schema``, in its key or value (``part``), as
    ``topic/partition@offset``; empty with a sample, which has no schema. ``named`` is what the registry
    calls the schema. ``columns`` are those that it changed.
    """

    columns: tuple[str, ...]
    record: str = ""
    part: str = ""
    schema: str = ""
    named: str = ""

    def __str__(self) -> str:
        columns = ", ".join(self.columns)
        if not self.record:
            return f"cause for {columns}: what values of a sample had"
        named = f" ({self.named})" if self.named else ""
        return f"cause for {columns}: schema {self.schema}{named}, first met at {self.record}"


@dataclass(frozen=True, slots=True)
class NotedAlteration:
    """One alteration. ``version`` is that of the definition since then; ``changes`` are sentences for people.

    ``batch_id`` is that of its snapshot. ``causes`` are those of changes by the table's contract.
    """

    version: int
    at_ms: int
    batch_id: str
    changes: tuple[str, ...]
    causes: tuple[NotedCause, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """The changes, and their causes."""
        return (*self.changes, *map(str, self.causes))


def with_alteration(properties: Mapping[str, str], new: NotedAlteration) -> dict[str, str]:
    """What the table's properties say of alterations with one more; old ones dropped beyond a bound."""
    changes = new.changes
    if len(changes) > CHANGES_MAX:
        changes = (*changes[:CHANGES_MAX], f"and {len(changes) - CHANGES_MAX} changes more")
    causes = [asdict(replace(one, columns=one.columns[:CHANGES_MAX])) for one in new.causes[:CHANGES_MAX]]
    entry = asdict(new) | {"changes": changes, "causes": causes}
    kept = [*map(asdict, alterations_of(properties)), entry][-ENTRIES_MAX:]
    while len(kept) > 1 and len(_text_of(kept)) > BYTES_MAX:
        del kept[0]
    return {ALTERATIONS_PROPERTY: _text_of(kept)}


def alterations_of(properties: Mapping[str, str]) -> tuple[NotedAlteration, ...]:
    """Those that a table's properties tell, the oldest first; what is damaged is left out."""
    found: list[NotedAlteration] = []
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        for one in json.loads(properties.get(ALTERATIONS_PROPERTY, "[]")):
            changes = tuple(map(str, one["changes"]))
            causes = tuple(map(_cause_of, one.get("causes", ())))
            found.append(
                NotedAlteration(int(one["version"]), int(one["at_ms"]), str(one["batch_id"]), changes, causes)
            )
    return tuple(found)


def last_by_contract(properties: Mapping[str, str]) -> NotedAlteration | None:
    """The last alteration that a table's contract made, as far as the properties tell."""
    return next((one for one in reversed(alterations_of(properties)) if one.causes), None)


def _cause_of(entry: Mapping[str, Any]) -> NotedCause:
    record, part, schema, named = (str(entry.get(name, "")) for name in ("record", "part", "schema", "named"))
    return NotedCause(tuple(map(str, entry["columns"])), record, part, schema, named)


def _text_of(entries: Sequence[dict[str, Any]]) -> str:
    return json.dumps(entries, separators=(",", ":"))
