"""Texts of records that several tables look at: read once for all tables that read them alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Final

from thermocline.rules.decode.connect import are_in_keys, are_in_values
from thermocline.rules.decode.routed import RouteTexts, TextReader
from thermocline.rules.definition import LiveTable
from thermocline.rules.headers import HeadersOf, no_headers
from thermocline.rules.routing import Source

__all__ = ["SharedTexts"]

_APART: Final = frozenset(
    {
        *("name", "identifier", "provenance_id", "version", "topics", "topic_patterns", "transactional"),
        *("where", "unless", "values_at", "delete_unmatched", "entity", "buckets", "file_buckets"),
        *("format_version", "on_error", "contract", "suppress_unchanged", "tombstone_retention_hours"),
        *("require_fields", "sequence_by"),
    }
)
"""What the texts of a record don't depend on. Whatever else a definition has, they may."""


class SharedTexts:
    """The readers of texts of tables whose records come in the same chunks."""

    def __init__(self) -> None:
        self._known: list[tuple[object, _OnceReader]] = []

    def reader(
        self, definition: LiveTable, sources: Sequence[Source], make: Callable[[], TextReader]
    ) -> _OnceReader:
        """The one of these sources for all tables that read records alike; ``make`` makes the first."""
        reading = _reading(definition), tuple(sources)
        for known, reader in self._known:
            if known == reading:
                return reader
        self._known.append((reading, _OnceReader(make())))
        return self._known[-1][1]


class _OnceReader:
    """A reader of texts that reads a chunk once, whoever asks for it; see `TextReader`."""

    def __init__(self, reader: TextReader) -> None:
        self._reader = reader
        self._last: tuple[Any, Any, RouteTexts] | None = None

    def read(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers_of: HeadersOf = no_headers,
        topic: str | None = None,
    ) -> RouteTexts:
        """See `TextReader`. A chunk is known by its lists of keys and values, which nobody changes."""
        if self._last is None or self._last[0] is not keys or self._last[1] is not values:
            self._last = None  # what raises is asked again
            self._last = keys, values, self._reader.read(keys, values, headers_of, topic)
        return self._last[2]


def _reading(definition: LiveTable) -> list[object]:
    """Equal for tables that find the same texts in each record.

    Of plain records, the columns say at most whether a document may have its schema beside it, and which of
    its fields are in the key; what else an envelope makes of a record, they may all have a part in.
    """
    is_plain = definition.envelope == "plain"
    names = [one.name for one in fields(definition) if one.name not in _APART]
    found: list[object] = [getattr(definition, name) for name in names if name != "columns" or not is_plain]
    return [*found, definition.fields_in_key, are_in_keys(definition), are_in_values(definition)]
