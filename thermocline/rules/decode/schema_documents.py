"""Documents that are read by the schemas of their writers, those of one schema together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from thermocline.rules.decode.fields import RowFields
from thermocline.rules.decode.formats import Refusals
from thermocline.rules.decode.framing import Group, HeadOf, SchemaId, grouped_by_head, no_heads, schema_id
from thermocline.rules.definition import Column

__all__ = [
    "ID_MAX",
    "READERS_MAX",
    "AskedSchemas",
    "BodyReader",
    "OneSchema",
    "SchemaDocuments",
    "SchemaFormat",
    "Target",
    "WriterSchema",
    "WriterSchemas",
    "own_schema",
    "read_in_groups",
]

ID_MAX: Final = 2**31 - 1  # a registry's ids are positive ints of Java
Columns = dict[str, list[Any]]
"""One list of natural values per column, aligned with the texts that they are read from."""
READERS_MAX: Final = 1_000
"""Schemas whose readers are kept. A topic has a handful; one that has a schema a record is read, too."""
_KINDS: Final = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema, after those that it refers to; or the reason why no record of it can be read.

    ``kind`` as registries have it: ``AVRO``, ``JSON`` or ``PROTOBUF``. ``texts`` are of Avro and JSON;
    ``descriptors`` of Protobuf: a FileDescriptorSet, the schema's own file last. ``message``: which of its
    messages all records are, unless each says so; empty for the only one.
    """

    texts: tuple[str, ...] = ()
    problem: str = ""
    kind: str = "AVRO"
    descriptors: bytes = b""
    message: str | None = None


def own_schema(format_: str, text: str | None, message: str | None) -> WriterSchema | None:
    """The schema that a definition has for all keys or values, if it does."""
    if text is None:
        return None
    if format_ == "protobuf":
        from thermocline.rules.protobuf_schema import unpacked_schema  # noqa: PLC0415  (takes long to load)

        return WriterSchema(kind="PROTOBUF", descriptors=unpacked_schema(text), message=message or "")
    return WriterSchema((text,))


class WriterSchemas(Protocol):
    """Knows schemas by their ids. An id means the same schema for ever."""

    def of(self, id_: SchemaId) -> WriterSchema:
        """The schema of an id. Raises an error of ours where it can't be asked for now."""
        ...


class AskedSchemas:
    """Schemas that are asked of others, and whether one was asked for that could not be had."""

    def __init__(self, schemas: WriterSchemas) -> None:
        self._schemas = schemas
        self._has_lacked = False

    def of(self, id_: SchemaId) -> WriterSchema:
        """See `WriterSchemas`."""
        schema = self._schemas.of(id_)
        self._has_lacked = self._has_lacked or bool(schema.problem)
        return schema

    def lacked_any(self) -> bool:
        """Whether any was lacking since this was asked last."""
        had_lacked, self._has_lacked = self._has_lacked, False
        return had_lacked


class OneSchema:
    """One schema for all records, whatever id they have."""

    def __init__(self, schema: WriterSchema) -> None:
        self._schema = schema

    def of(self, id_: SchemaId) -> WriterSchema:  # noqa: ARG002  (whichever it is)
        """See `WriterSchemas`."""
        return self._schema


class BodyReader(Protocol):
    """Reads the bodies of records that one schema wrote."""

    def read(self, bodies: Sequence[bytes], start: int, refused: Refusals) -> list[list[Any]]:
        """A list of natural values for each column, aligned with the bodies; each begins at ``start``.

        What is refused is by the place among the bodies, and has null everywhere.
        """
        ...


@dataclass(frozen=True, slots=True)
class SchemaFormat:
    """A format of bodies: ``kind`` of schemas, what names one, and what reads the bodies of one.

    ``length_of`` and ``short`` as in `grouped_by_head`. ``reader`` gets the schema, what names it, the
    columns, the names of those that must not be null, whether to give `UNSET` for what a record leaves as it
    is, and the fields of which a row needs one; it raises `ValueError` where no record of it can be read.
    """

    kind: str
    length_of: Callable[[bytes], int]
    short: int
    reader: Callable[[WriterSchema, bytes, Sequence[Column], Sequence[str], bool, RowFields], BodyReader]


class SchemaDocuments:
    """Reads records into columns, each by its writer's schema; see `Documents`."""

    def __init__(
        self,
        format_: SchemaFormat,
        schemas: WriterSchemas,
        is_framed: bool,
        tells_unset: bool,
        row_fields: RowFields,
        columns: Sequence[Column],
        required: Sequence[str],
    ) -> None:
        """Prepares for records with these columns, of which some must not be null.

        ``is_framed``: each record names its schema, in a header or before its body. ``tells_unset`` and
        ``row_fields`` as in `SchemaFormat`.
        """
        self._format = format_
        self._schemas = schemas
        self._is_framed = is_framed
        self._tells_unset = tells_unset
        self._row_fields = row_fields
        self._columns = columns
        self._required = [column for column in columns if column.name in required]
        self._readers: dict[bytes, BodyReader | str] = {}

    def read(
        self, texts: Sequence[bytes | None], refused: Refusals, head_of: HeadOf = no_heads
    ) -> dict[str, list[Any]]:
        """See `Documents`. Raises what `WriterSchemas` raises."""
        names = [column.name for column in self._columns]
        if not names and texts.count(None) == len(texts):
            return {}

        def read(group: Group, bodies: Sequence[Any], refused: Refusals) -> Columns | str:
            head, start = group
            reader = self._reader(head)
            if isinstance(reader, str):
                return reader
            return dict(zip(names, reader.read(bodies, start, refused), strict=True))

        return read_in_groups(names, texts, self._groups(texts, refused, head_of), read, refused)

    def _groups(
        self, texts: Sequence[bytes | None], refused: Refusals, head_of: HeadOf
    ) -> dict[Group, list[int]]:
        if self._required:
            missing = (self._required[0], f"{self._required[0].name}: missing")
            refused.update((index, missing) for index, text in enumerate(texts) if text is None)
        if not self._is_framed:
            return {(b"", 0): [index for index, text in enumerate(texts) if text is not None]}

        def refuse(index: int, why: str) -> None:
            refused[index] = (None, why)

        return grouped_by_head(texts, head_of, self._format.length_of, self._format.short, refuse)

    def _reader(self, head: bytes) -> BodyReader | str:
        reader = self._readers.get(head)
        if reader is not None:
            return reader
        id_ = schema_id(head) if self._is_framed else 0
        if isinstance(id_, int) and id_ > ID_MAX:
            return f"no schema has the id {id_}"
        schema = self._schemas.of(id_)
        if schema.problem:  # which may be gone when it is asked for again
            return schema.problem
        reader = self._made(schema, id_, head)
        if len(self._readers) >= READERS_MAX:
            self._readers.clear()
        self._readers[head] = reader
        return reader

    def _made(self, schema: WriterSchema, id_: SchemaId, head: bytes) -> BodyReader | str:
        if schema.kind != self._format.kind:  # safety: schema-kind
            kind, ours = (_KINDS.get(kind, kind) for kind in (schema.kind, self._format.kind))
            return f"schema {id_} is one of {kind}, not of {ours}"
        required = [column.name for column in self._required]
        try:
            return self._format.reader(
                schema, head, self._columns, required, self._tells_unset, self._row_fields
            )
        except (ValueError, RecursionError) as error:
            of = f" {id_}" if self._is_framed else ""
            return f"its writer's schema{of} can't be used: {error}"


def read_in_groups(
    names: Sequence[str],
    texts: Sequence[bytes | None],
    groups: Mapping[Any, Sequence[int]],
    read: Callable[[Any, Sequence[bytes | None], Refusals], Columns | str],
    refused: Refusals,
) -> Columns:
    """The columns of texts, of which those of a group are read together; null for those of no group.

    ``read`` refuses by the place in the group, or says why it refuses all of it.
    """
    found: Columns = {name: [None] * len(texts) for name in names}
    for group, indexes in groups.items():
        is_all = len(indexes) == len(texts)
        of_some: Refusals = {}
        columns = read(group, texts if is_all else [texts[index] for index in indexes], of_some)
        if isinstance(columns, str):
            refused.update(dict.fromkeys(indexes, (None, columns)))
            continue
        refused.update((indexes[place], why) for place, why in of_some.items())
        if is_all:
            return columns
        for name, values in columns.items():
            into = found[name]
            for index, value in zip(indexes, values, strict=True):
                into[index] = value
    return found


@dataclass(frozen=True, slots=True)
class Target:
    """A column that is read within what is at hand, by the rest of its path."""

    number: int
    column: Column
    path: tuple[str, ...]

    def inside(self) -> Target:
        """The same within the first name of the path."""
        return Target(self.number, self.column, self.path[1:])

    @property
    def before(self) -> tuple[str, ...]:
        """Where what is at hand is in the value."""
        return self.column.read_from[: -len(self.path)]
