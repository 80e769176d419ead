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

from thermocline.rules.decode.arrow import key_table, records_table
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
    "decoder_for",
    "json_row",
    "key_table",
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


def decoder_for(definition: LiveTable) -> Decoder:
    """The decoder of the definition's records: its envelope, its formats, and the source of its schemas."""
    key_format, value_format = _FORMATS[definition.key_format], _FORMATS[definition.format]
    schemas = DeclaredColumns(definition)
    envelope = _ENVELOPES[definition.envelope](definition)
    return RecordDecoder(definition, envelope, key_format, value_format, schemas)
