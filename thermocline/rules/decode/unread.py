"""Fields of values that no column is read from: of a sample of the records, by name or path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from thermocline.errors import RegistryUnreachable
from thermocline.rules.decode.connect import are_in_values, unwrapped
from thermocline.rules.decode.framing import (
    VALUE_HEADER,
    Group,
    HeadOf,
    grouped_by_head,
    id_length,
    indexes_length,
    readable_heads_in,
    schema_id,
)
from thermocline.rules.decode.json_object import REFUSALS
from thermocline.rules.decode.schema_documents import (
    ID_MAX,
    READERS_MAX,
    WriterSchema,
    WriterSchemas,
    own_schema,
)
from thermocline.rules.definition import JSON_FORMATS, SCHEMA_FORMATS, LiveTable
from thermocline.rules.headers import HeadersOf, no_headers
from thermocline.rules.unread_paths import UnreadPaths

__all__ = ["NAMES_MAX", "OTHER", "SAMPLE_VALUES", "Sampled", "UnreadFields", "bounded"]

SAMPLE_VALUES: Final = 8
"""Of a chunk: each of JSON is parsed once more, which takes about a hundredth of decoding the chunk."""
NAMES_MAX: Final = 20
OTHER: Final = "(other)"
_NAME_CHARACTERS_MAX: Final = 100
_ROWS: Final = {"debezium": "after", "maxwell": "data"}
"""By envelope: where an event has its row."""
_FRAMES: Final = {"protobuf": (indexes_length, 6)}
"""By format, unless as `id_length` says: how many bytes name a schema, and how many mostly."""

_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class Sampled:
    """How many values were looked at, and by name in how many of them a field is that no column is read from.

    Values of JSON that are deletes or no object are not among them, nor values whose schema can't be had. The
    last name may be `OTHER`.
    """

    values: int = 0
    names: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Sampled) -> Sampled:
        """Both together, with names up to the bound."""
        names = Counter(self.names)
        names.update(other.names)
        return Sampled(
            self.values + other.values, bounded(names, [one for one in self.names if one != OTHER])
        )


class UnreadFields:
    """Counts fields that no column of a table is read from, in values of formats that have fields.

    In JSON these are the names of the values' own fields. Where values have schemas, it is what the schema of
    each declares, by path (see `UnreadPaths`), found once for each schema; of JSON with a schema, both.
    """

    def __init__(self, definition: LiveTable, registry: WriterSchemas | None = None) -> None:
        """For the records of that table, whose schemas ``registry`` knows, as in `decoder_for`."""
        self._is_json = definition.format in JSON_FORMATS
        self._schemas = _Schemas(definition, registry) if definition.format in SCHEMA_FORMATS else None
        self._row = _ROWS.get(definition.envelope)
        self._may_have_schema = are_in_values(definition)
        rule = definition.delete_when.path[:1] if definition.delete_when is not None else ()
        routes = {source.field[0] for source in definition.route.sources if source.field}
        in_row = {column.read_from[0] for column in definition.columns if column.is_in_row}
        self._read = in_row | routes | set(rule)

    def is_read(self, name: str) -> bool:
        """Whether a column is read from a field of that name or path, or whether a record is a delete."""
        return name in self._read or (self._schemas is not None and self._schemas.paths.is_read(name))

    def of(
        self,
        values: Sequence[bytes | None],
        values_max: int = SAMPLE_VALUES,
        headers_of: HeadersOf = no_headers,
        others: Collection[int] = (),
    ) -> Sampled:
        """What ``values_max`` of some values have, evenly of all but ``others``.

        Nothing of formats without fields.
        """
        places: Sequence[int] = range(len(values))
        if others:
            places = [place for place in places if place not in others]
        places = places[:: max(len(places) // values_max, 1)][:values_max]
        sample: Sequence[bytes | None] = [values[place] for place in places]
        if self._schemas is not None:
            head_of = readable_heads_in(headers_of, VALUE_HEADER)
            return self._by_schemas(self._schemas, sample, lambda index: head_of(places[index]))
        if not self._is_json:
            return Sampled()
        if self._may_have_schema:
            sample, _ = unwrapped(sample)
        found: Counter[str] = Counter()
        looked_at = sum(self._is_counted(value, found) for value in sample)
        return Sampled(looked_at, bounded(found))

    def _by_schemas(self, schemas: _Schemas, sample: Sequence[bytes | None], head_of: HeadOf) -> Sampled:
        found: Counter[str] = Counter()
        looked_at = 0
        for (head, start), indexes in schemas.groups(sample, head_of).items():
            declared = schemas.declared(head)
            if self._is_json:
                bodies = ((sample[index] or b"")[start:] for index in indexes)
                looked_at += sum(self._is_counted(body, found, declared or frozenset()) for body in bodies)
            elif declared is not None:
                looked_at += len(indexes)
                found.update(dict.fromkeys(declared, len(indexes)))
        return Sampled(looked_at, bounded(found))

    def _is_counted(
        self, value: bytes | None, found: Counter[str], declared: frozenset[str] = frozenset()
    ) -> bool:
        """Counts what a value of JSON has, and what its schema declares; whether it has a row."""
        row = self._row_of(value) if value else None
        if row is not None:
            found.update(declared | {name[:_NAME_CHARACTERS_MAX] for name in row if name not in self._read})
        return row is not None

    def _row_of(self, value: bytes) -> Mapping[str, object] | None:
        """The fields of a row; None where there is no row, or none that can be read, which decoding says."""
        try:
            fields = _fields(value)
            if self._row is None:
                return fields
            return _fields(fields[self._row]) if self._row in fields else None
        except REFUSALS:
            return None


class _Schemas:
    """The schemas of values, and what each declares that no column is read from."""

    def __init__(self, definition: LiveTable, registry: WriterSchemas | None) -> None:
        self.paths = UnreadPaths(definition)
        self._own = own_schema(definition.format, definition.value_schema, definition.value_message)
        self._is_framed = self._own is None or definition.schema_framed
        self._registry = registry
        self._length_of, self._short = _FRAMES.get(definition.format, (id_length, 5))
        self._declared: dict[bytes, frozenset[str] | None] = {}

    def groups(self, texts: Sequence[bytes | None], head_of: HeadOf) -> Mapping[Group, Sequence[int]]:
        """The values by what names their schema; those of which nothing names it are left out."""
        if not self._is_framed:
            return {(b"", 0): [index for index, text in enumerate(texts) if text is not None]}
        some = [text or None for text in texts]
        return grouped_by_head(some, head_of, self._length_of, self._short, lambda *_: None)

    def declared(self, head: bytes) -> frozenset[str] | None:
        """The paths in the schema that is named; None where it can't be had, or has no row."""
        try:
            return self._declared[head]
        except KeyError:
            schema = self._schema(head)
        paths = None if schema is None else self.paths.of(schema, head)
        cut = None if paths is None else frozenset(path[:_NAME_CHARACTERS_MAX] for path in paths)
        if schema is not None and not schema.problem:  # which may be gone when it is asked for again
            if len(self._declared) >= READERS_MAX:
                self._declared.clear()
            self._declared[head] = cut
        return cut

    def _schema(self, head: bytes) -> WriterSchema | None:
        if self._own is not None or self._registry is None:
            return self._own
        id_ = schema_id(head)
        if isinstance(id_, int) and id_ > ID_MAX:
            return None
        try:
            return self._registry.of(id_)
        except RegistryUnreachable:  # safety: unread-without-registry
            return None


def bounded(counts: Mapping[str, int], known: Sequence[str] = ()) -> dict[str, int]:
    """The same with at most `NAMES_MAX` names, ``known`` ones first; the rest are `OTHER`."""
    found = dict(counts)
    names = [name for name in known if name in found]
    names += sorted(name for name in found if name not in known and name != OTHER)
    kept = {name: found.pop(name) for name in names[:NAMES_MAX]}
    return kept | {OTHER: sum(found.values())} if found else kept
