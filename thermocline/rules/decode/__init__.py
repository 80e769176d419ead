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

from collections.abc import Callable
from functools import partial

from thermocline.errors import ConfigInvalid
from thermocline.rules.decode.arrow import arrow_array, key_table, natural_values, records_table
from thermocline.rules.decode.avro import AvroDocuments, OneSchema, SchemaId, WriterSchema, WriterSchemas
from thermocline.rules.decode.debezium import DebeziumEnvelope
from thermocline.rules.decode.envelopes import Envelope, PlainEnvelope
from thermocline.rules.decode.formats import DeclaredColumns
from thermocline.rules.decode.json_documents import JsonDocuments
from thermocline.rules.decode.payload import Unpacker, json_row, pack_rows
from thermocline.rules.decode.payload_arrays import unpack_arrays
from thermocline.rules.decode.plain import PlainDocuments
from thermocline.rules.decode.record import Bad, Decoded, Decoder, Stage
from thermocline.rules.decode.records import Format, RecordDecoder
from thermocline.rules.definition import ONE_COLUMN, LiveTable

__all__ = [
    "Bad",
    "Decoded",
    "Decoder",
    "Stage",
    "Unpacker",
    "WriterSchemas",
    "arrow_array",
    "decoder_for",
    "json_row",
    "key_table",
    "natural_values",
    "pack_rows",
    "records_table",
    "unpack_arrays",
]

_ENVELOPES: dict[str, Callable[[LiveTable], Envelope]] = {
    "plain": PlainEnvelope,
    "debezium": DebeziumEnvelope,
}
_FORMATS: dict[str, Format] = {
    "json": JsonDocuments,
    **{name: partial(PlainDocuments, name) for name in ONE_COLUMN},
}


def decoder_for(definition: LiveTable, registry: WriterSchemas | None = None) -> Decoder:
    """The decoder of the definition's records: its envelope, its formats, and the source of its schemas.

    ``registry`` knows the schemas of their writers, where the definition does not have them
    (``needs_registry``). Where it can't be asked, decoding raises its error.
    """
    schemas = DeclaredColumns(definition)
    return RecordDecoder(
        definition,
        _ENVELOPES[definition.envelope](definition),
        _format(definition, definition.key_format, definition.key_schema, registry),
        _format(definition, definition.format, definition.value_schema, registry),
        schemas,
    )


def _format(definition: LiveTable, name: str, schema: str | None, registry: WriterSchemas | None) -> Format:
    if name != "avro":
        return _FORMATS[name]
    if schema is not None:
        return partial(AvroDocuments, OneSchema(schema), definition.schema_framed)
    return partial(AvroDocuments, _NoRegistry(definition) if registry is None else registry, True)


class _NoRegistry:
    """Where none is configured; nor is one needed as long as nothing has to be asked."""

    def __init__(self, definition: LiveTable) -> None:
        self._table = definition.name

    def of(self, id_: SchemaId) -> WriterSchema:  # noqa: ARG002  (whichever it is)
        """Raises `ConfigInvalid`: which schema the record was written by is not known."""
        problem = "its records name their schemas, and no [registry] says where these are"
        raise ConfigInvalid(of=f"of table {self._table}", problems=(problem,))
