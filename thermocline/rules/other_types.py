"""The column types of other systems, and their names here."""

from __future__ import annotations

from typing import Final

_OURS: Final = {
    '"int"': (
        *("byte", "int16", "int2", "int32", "int4", "integer", "mediumint", "serial", "short", "smallint"),
        *("smallserial", "tinyint"),
    ),
    '"long"': ("bigint", "bigserial", "int64", "uint32"),
    '"double"': ("double precision", "float", "float32", "float4", "float64", "float8", "real"),
    '"boolean"': ("bit", "bool"),
    '"string"': (
        *("char", "character", "character varying", "clob", "enum", "keyword", "nchar", "nvarchar", "str"),
        *("text", "varchar", "varchar2"),
    ),
    '"time"': ("time without time zone", "timeofday"),
    '"binary"': ("blob", "bytea", "bytes", "fixed", "varbinary"),
    '"timestamptz"': ("instant", "timestamp with time zone", "timestamp_ltz", "timestamp_tz"),
    '"timestamp", or "timestamptz" where the values have a zone': (
        *("datetime", "datetime2", "datetime64", "timestamp without time zone", "timestamp_ntz"),
    ),
    '"uuid"': ("guid", "uniqueidentifier"),
    '"decimal(PRECISION,SCALE)", such as "decimal(10,2)"': ("money", "number", "numeric"),
    '"json", or a type such as "struct<city: string>"': ("hstore", "jsonb", "object", "variant"),
    'a type such as "struct<city: string>"': ("record", "tuple"),
}
_MEANT: Final = {word: ours for ours, words in _OURS.items() for word in words}


def meant_by(word: str) -> str:
    """``; here it is "long"`` for a word such as ``bigint`` or ``varchar(20)``; nothing for others."""
    ours = _MEANT.get(word.partition("(")[0].strip())
    return f"; here it is {ours}" if ours else ""
