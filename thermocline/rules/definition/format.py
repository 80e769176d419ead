"""Options that say how records are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from thermocline.rules.definition.option import fixed, free
from thermocline.rules.definition.options import (
    BINARY_ENCODINGS,
    ENVELOPES,
    RECORD_BYTES_MAX,
    SCHEMA_FORMATS,
    UNAVAILABLE,
    DeleteRule,
)

__all__ = ["SAME_ROW", "FormatOptions"]

SAME_ROW: Final = "the same record must mean the same row whenever it is read"
_SAME_KEY: Final = "the same record must have the same key whenever it is read"
_OWN_SCHEMA: Final = "records do not name their schema, and the log has some that this one wrote"


@dataclass(frozen=True, kw_only=True)
class FormatOptions:
    """How records are read.

    ``key_schema`` and ``value_schema`` are the schemas of all records, of Avro its text, of Protobuf its
    descriptors in base64; where there is none, each record names its own. ``key_format`` is never unset here.
    """

    format: str = field(
        default="json",
        metadata=fixed(
            SAME_ROW,
            "Format of values: `json`; `avro`, `protobuf` or `json_schema`, decoded with the writer's "
            "schema; or Kafka's `string`, `int`, `long`, `uuid` or `bytes`, if the value is a single column. "
            "See [formats](../formats/README.md).",
        ),
    )
    key_from: str = field(
        default="key",
        metadata=fixed(
            _SAME_KEY,
            "Where the key columns are: in the record's `key` or in its `value`. Tombstones need `key`.",
            needs_key=True,
        ),
    )
    key_format: str = field(
        metadata=fixed(
            _SAME_KEY,
            "Format of keys, if it differs from the format of values.",
            needs_key=True,
            unset=None,
        )
    )
    envelope: str = field(
        default=ENVELOPES[0],
        metadata=fixed(
            SAME_ROW,
            "Kind of record: `plain` (a row, or its deletion), or `debezium` or `maxwell` (a change event).",
            left_out=True,
            needs_key=True,
        ),
    )
    delete_when: DeleteRule | None = field(
        default=None,
        metadata=fixed(
            SAME_ROW,
            'Which records delete their row, in addition to records without a value: `{ path = "op", values '
            '= ["D"] }`, or `header` instead of `path`.',
            left_out=True,
            needs_key=True,
        ),
    )
    value_schema: str | None = field(
        default=None,
        metadata=fixed(
            _OWN_SCHEMA,
            "File with the schema of all values, if the values don't name their schemas: Avro's JSON, a "
            "`.proto` file or a compiled one. The schema becomes part of the table's definition, and can't "
            "be altered.",
            left_out=True,
            setting="value_schema_file",
        ),
    )
    key_schema: str | None = field(
        default=None,
        metadata=fixed(
            _OWN_SCHEMA,
            "Like `value_schema_file`, for keys.",
            left_out=True,
            needs_key=True,
            setting="key_schema_file",
        ),
    )
    value_message: str | None = field(
        default=None,
        metadata=fixed(
            _OWN_SCHEMA,
            "Full name of the Protobuf message in `value_schema_file` that all values are. Empty: the only "
            "message in the file.",
            left_out=True,
        ),
    )
    key_message: str | None = field(
        default=None,
        metadata=fixed(_OWN_SCHEMA, "Like `value_message`, for keys.", left_out=True, needs_key=True),
    )
    schema_framed: bool = field(
        default=False,
        metadata=fixed(
            SAME_ROW,
            "Set to true if there is a schema file, but records name a schema nevertheless, before the body "
            "or in a header. That name is then ignored.",
            left_out=True,
        ),
    )
    unavailable_value_placeholder: str = field(
        default=UNAVAILABLE,
        metadata=fixed(
            SAME_ROW,
            'With `envelope = "debezium"`: the connector\'s `unavailable.value.placeholder`, if that is not '
            "Debezium's default, which always counts, too; can't be altered. See "
            "[formats](../formats/change-events.md#debezium).",
            left_out=True,
            needs_key=True,
        ),
    )
    binary_encoding: str = field(
        default=BINARY_ENCODINGS[0],
        metadata=fixed(
            SAME_ROW,
            "How JSON has the bytes of `binary` columns: `base64`, `base64-url-safe` or `hex`, as Debezium's "
            "`binary.handling.mode`; can't be altered. See "
            "[formats](../formats/schemas.md#schemas-in-the-records).",
            left_out=True,
            needs_key=True,
        ),
    )
    require_fields: bool = field(
        default=True,
        metadata=free(
            "Refuse a value that isn't empty and has none of the fields that the columns are read from: such "
            "a record would set every column to null. `false`: take it.",
            left_out=True,
        ),
    )
    record_bytes_max: int = field(
        default=RECORD_BYTES_MAX,
        metadata=free(
            "Maximum size of a record, key and value together, uncompressed. A larger one is a bad record.",
            left_out=True,
            is_size=True,
        ),
    )

    @property
    def needs_registry(self) -> bool:
        """Whether only a schema registry knows the schemas of its records' writers."""
        in_keys = self.key_from == "key" and self.key_format in SCHEMA_FORMATS
        in_values = self.format in SCHEMA_FORMATS
        return (in_keys and self.key_schema is None) or (in_values and self.value_schema is None)
