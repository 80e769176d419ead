"""One record's bytes become a row, a tombstone, or a reason why not; no record touches another.

``decoder_for`` puts a table's decoder together: an envelope (which part of a record is key, value, delete),
a format (how bytes become columns) and a source of schemas (which columns). It reads chunks of raw keys and
values into ``Decoded``: columns of natural Python values, and the bad records beside them. From there, rows
go two ways: ``records_table`` makes the Arrow table that ingest folds; ``key_table`` and ``pack_rows`` make
the keys and the payloads that the hot tier keeps, and an ``Unpacker`` reads payloads back one by one,
``unpack_arrays`` as columns. Read ``record`` first, then ``records``, and ``json_documents``, which is the
record rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from thermocline.errors import ConfigInvalid
from thermocline.rules.contract.modes import Contract
from thermocline.rules.decode.arrow import (
    arrow_array,
    key_table,
    natural_values,
    records_table,
    sequences,
)
from thermocline.rules.decode.avro import AVRO
from thermocline.rules.decode.connect import ConnectDocuments, ConnectEnvelope
from thermocline.rules.decode.debezium import DebeziumEnvelope, JsonDebeziumEnvelope
from thermocline.rules.decode.directory import DirectoryDecoder
from thermocline.rules.decode.envelopes import Envelope, PlainEnvelope
from thermocline.rules.decode.fields import ANY_ROW, RowFields, needed_fields
from thermocline.rules.decode.formats import DeclaredColumns, Format
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.json_documents import JsonDocuments
from thermocline.rules.decode.json_schema import JSON_SCHEMA, JsonSchemaEnvelope
from thermocline.rules.decode.maxwell import MaxwellEnvelope
from thermocline.rules.decode.payload import Unpacker, json_lines, json_row, pack_rows
from thermocline.rules.decode.payload_arrays import unpack_arrays
from thermocline.rules.decode.plain import PlainDocuments
from thermocline.rules.decode.record import Bad, Decoded, Decoder, Stage
from thermocline.rules.decode.record_names import RecordNames
from thermocline.rules.decode.records import RecordDecoder
from thermocline.rules.decode.routed import ReadsTexts, RoutedDecoder, RouteTexts, TextReader
from thermocline.rules.decode.schema_documents import (
    AskedSchemas,
    OneSchema,
    SchemaDocuments,
    SchemaFormat,
    WriterSchema,
    WriterSchemas,
    own_schema,
)
from thermocline.rules.decode.shared_texts import SharedTexts
from thermocline.rules.definition import ONE_COLUMN, LiveTable
from thermocline.rules.routing import Source

__all__ = [
    "AskedSchemas",
    "Bad",
    "Decoded",
    "Decoder",
    "Readers",
    "RouteTexts",
    "SharedTexts",
    "Stage",
    "TextReader",
    "Unpacker",
    "WriterSchemas",
    "arrow_array",
    "decoder_for",
    "json_lines",
    "json_row",
    "key_table",
    "natural_values",
    "pack_rows",
    "readers_for",
    "records_table",
    "sequences",
    "text_reader_for",
    "unpack_arrays",
]

_FORMATS: dict[str, Format] = {
    "json": JsonDocuments,
    "json_schema": JsonDocuments,  # without what names their schemas, which `JsonSchemaEnvelope` takes off
    **{name: partial(PlainDocuments, name) for name in ONE_COLUMN},
}


@dataclass(frozen=True, slots=True)
class Readers:
    """The parts of a decoder; ``row_format`` reads values that are rows, ``value_format`` any part of one."""

    envelope: Envelope
    key_format: Format
    value_format: Format
    row_format: Format


def decoder_for(
    definition: LiveTable, registry: WriterSchemas | None = None, texts: SharedTexts | None = None
) -> Decoder:
    """The decoder of the definition's records, made of its `readers_for`, its columns and its contract.

    Where the definition says which records are the table's, it filters the others, whatever they hold. With
    ``texts``, it reads what tells them apart together with others that decode the same chunks.
    """
    readers = readers_for(definition, registry)
    formats = (readers.key_format, readers.value_format, readers.row_format)
    if definition.values_at is not None:
        reader = _text_reader(definition, (definition.values_at,), registry, texts)
        names = definition.row_schema.names
        return DirectoryDecoder(definition.values_at, reader, names, definition.columns_by_schema)
    decoder: Decoder = RecordDecoder(definition, readers.envelope, *formats, DeclaredColumns(definition))
    if definition.route:
        reader = _text_reader(definition, definition.route.sources, registry, texts)
        decoder = RoutedDecoder(definition, reader, decoder)
    return _by_contract(definition, decoder, registry)


def _text_reader(
    definition: LiveTable,
    sources: Sequence[Source],
    registry: WriterSchemas | None,
    texts: SharedTexts | None,
) -> ReadsTexts:
    def make() -> TextReader:
        return text_reader_for(definition, sources, registry)

    return make() if texts is None else texts.reader(definition, sources, make)


def _by_contract(definition: LiveTable, decoder: Decoder, registry: WriterSchemas | None) -> Decoder:
    """A decoder that also refuses what the table's contract does, of the records that are the table's."""
    if registry is None or definition.contract == Contract():
        return decoder
    from thermocline.rules.contract.refusing import (  # noqa: PLC0415  (few tables need it; it takes long to load)
        ContractDecoder,
        is_refusing,
    )

    return ContractDecoder(definition, decoder, registry) if is_refusing(definition) else decoder


def text_reader_for(
    definition: LiveTable, sources: Sequence[Source], registry: WriterSchemas | None = None
) -> TextReader:
    """What reads the texts of sources, as records in the formats of a definition have them."""
    readers = readers_for(definition, registry)
    names = None
    if any(source.schema for source in sources):
        names = RecordNames(definition.format, registry or _NoRegistry(definition))
    return TextReader(definition, sources, readers.envelope, readers.key_format, readers.value_format, names)


def readers_for(definition: LiveTable, registry: WriterSchemas | None = None) -> Readers:
    """The definition's envelope, its formats, and the source of its schemas.

    ``registry`` knows the schemas of their writers, where the definition does not have them
    (``needs_registry``). Where it can't be asked, decoding raises its error.
    """
    key_schema = own_schema(definition.key_format, definition.key_schema, definition.key_message)
    value_schema = own_schema(definition.format, definition.value_schema, definition.value_message)
    key_format = _format(definition, definition.key_format, key_schema, registry, False)
    tells_unset = definition.merging.is_partial and definition.envelope == "plain"
    value_format = _format(definition, definition.format, value_schema, registry, tells_unset)
    row_at = ("after",) if definition.envelope == "debezium" else ()
    fields = RowFields(needed_fields(definition), row_at)
    row_format = _format(definition, definition.format, value_schema, registry, tells_unset, fields)
    envelope = _envelope(definition, value_format, row_format)
    if definition.envelope != "maxwell":
        envelope = ConnectEnvelope(definition, envelope)
        encoding = definition.binary_encoding
        key_format = _typed(key_format, (), encoding)
        value_format, row_format = (_typed(one, row_at, encoding) for one in (value_format, row_format))
    if "json_schema" in (definition.key_format, definition.format):
        bodies = partial(
            SchemaDocuments, JSON_SCHEMA, registry or _NoRegistry(definition), True, False, RowFields()
        )
        envelope = JsonSchemaEnvelope(definition, envelope, bodies)
    return Readers(envelope, key_format, value_format, row_format)


def _envelope(definition: LiveTable, value_format: Format, row_format: Format) -> Envelope:
    if definition.envelope == "plain":
        return PlainEnvelope(definition, value_format)
    if definition.envelope == "maxwell":
        return MaxwellEnvelope()
    if _FORMATS.get(definition.format) is JsonDocuments:
        return JsonDebeziumEnvelope(definition)
    return DebeziumEnvelope(definition, row_format)


def _typed(format_: Format, row_at: Sequence[str], encoding: str) -> Format:
    """A format that reads by the schemas beside documents, where those are JSON."""
    return partial(ConnectDocuments, row_at, encoding) if format_ is JsonDocuments else format_


def _format(
    definition: LiveTable,
    name: str,
    schema: WriterSchema | None,
    registry: WriterSchemas | None,
    tells_unset: bool,
    fields: RowFields = ANY_ROW,
) -> Format:
    if name in _FORMATS:
        return _FORMATS[name]
    of_schemas = _schema_format(name)
    if schema is not None:
        one = OneSchema(schema)
        return partial(SchemaDocuments, of_schemas, one, definition.schema_framed, tells_unset, fields)
    schemas = _NoRegistry(definition) if registry is None else registry
    return partial(SchemaDocuments, of_schemas, schemas, True, tells_unset, fields)


def _schema_format(name: str) -> SchemaFormat:
    if name == "avro":
        return AVRO
    from thermocline.rules.decode.protobuf import PROTOBUF  # noqa: PLC0415  (few need it; it takes long to load)

    return PROTOBUF


class _NoRegistry:
    """Where none is configured; nor is one needed as long as nothing has to be asked."""

    def __init__(self, definition: LiveTable) -> None:
        self._table = definition.name

    def of(self, id_: SchemaId) -> WriterSchema:  # noqa: ARG002  (whichever it is)
        """Raises `ConfigInvalid`: which schema the record was written by is not known."""
        problem = "its records name their schemas, and no [registry] says where these are"
        raise ConfigInvalid(of=f"of table {self._table}", problems=(problem,))
