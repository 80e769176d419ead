"""The fields of an entry for a kind of column, which `type_table` fills in for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import pyarrow as pa
from pyiceberg.types import IcebergType

from thermocline.rules.nested_types import Convert

if TYPE_CHECKING:
    from thermocline.rules.column_types import ColumnType

__all__ = [
    "KEY_END",
    "Counted",
    "Epoch",
    "KeyForm",
    "Kind",
    "Packing",
    "Token",
    "TypeEntry",
    "for_every",
]

_Member = TypeVar("_Member", bound=Enum)
_Value = TypeVar("_Value")
Epoch = Literal["s", "ms", "us", "d"]
KEY_END: Final = b"\x00\x01"


class Kind(StrEnum):
    """The kinds of column; the value is the word in the configuration."""

    INT = "int"
    LONG = "long"
    STRING = "string"
    DOUBLE = "double"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    DATE = "date"
    TIME = "time"
    TIMESTAMPTZ = "timestamptz"
    TIMESTAMP = "timestamp"
    UUID = "uuid"
    BINARY = "binary"
    JSON = "json"
    STRUCT = "struct"
    LIST = "list"
    MAP = "map"


class Packing(StrEnum):
    """How MessagePack holds a value in the hot tier."""

    NUMBER = "number"
    TEXT = "text"
    BYTES = "bytes"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    TIME = "time"
    """Text, which Arrow can't read by itself."""
    NESTED = "nested"
    """MessagePack itself, as bytes: so that each cell of a row says how long it is."""


class Token(StrEnum):
    """How a condition in SQL spells a value."""

    NUMBER = "number"
    TEXT = "text"
    TRUTH = "truth"


@dataclass(frozen=True, slots=True)
class KeyForm:
    """A key column's value as bytes that sort as it does.

    ``width`` is None where the bytes are escaped and end with `KEY_END`. ``is_integer``: big-endian with the
    sign bit flipped. ``hashed`` gives what Iceberg's bucket transform hashes (specification, appendix B).
    """

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], object]
    hashed: Callable[[Any], bytes]
    width: int | None = None
    is_integer: bool = False


@dataclass(frozen=True, slots=True)
class Counted:
    """A value as the number of units since it began to be counted, which a type's epoch declares.

    ``units`` has for each the factor to what ``make`` makes the natural value of; ``parsed``, what msgspec
    checks.
    """

    units: Mapping[Epoch, int]
    parsed: Any
    make: Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class TypeEntry:
    """One kind of column.

    ``arrow`` of every table of ours (a UUID is its 16 bytes); ``python``, the natural value; ``parsed``, what
    msgspec checks and gives for a JSON value, and ``convert``, what makes the natural value of that;
    ``stored`` makes of a natural value what Arrow takes, ``natural`` the other way round, ``spelled`` what a
    JSON encoder takes; None: as it is.
    ``json_schema``, of the JSON that is given out; ``key``, where it may be a key column.

    ``of_text`` reads the text of a URL, a command, a condition, a plain key or a header, and raises
    ValueError with a plain phrase; ``of_bytes`` the same of bytes that are the whole value. None: it is never
    read so. ``plain`` names the formats in which such a value is a record's whole key or value.
    ``token`` is how a condition spells it; None where no value of it can be compared.
    ``counted``, how it is given as a number; None where it has no epoch.
    ``texts`` makes the texts of CSV; None where Arrow writes them as we do.
    ``orders``: records can be ordered by it. ``since`` is the value of 0 microseconds, of times.
    """

    arrow: Callable[[ColumnType], pa.DataType]
    iceberg: Callable[[ColumnType], IcebergType]
    duckdb: str
    trino: str
    python: Callable[[ColumnType], Any]
    packing: Packing
    json_schema: Callable[[ColumnType], dict[str, Any]]
    parsed: Callable[[ColumnType], Any]
    of_text: Callable[[ColumnType], Convert] | None
    plain: tuple[str, ...]
    token: Token | None
    texts: Callable[[ColumnType, pa.Array], pa.Array] | None
    orders: bool
    convert: Callable[[ColumnType], Convert | None] = lambda _: None
    stored: Callable[[ColumnType], Convert | None] = lambda _: None
    natural: Callable[[ColumnType], Convert | None] = lambda _: None
    spelled: Callable[[ColumnType], Convert | None] = lambda _: None
    counted: Counted | None = None
    of_bytes: Convert | None = None
    key: KeyForm | None = None
    since: datetime | None = None


def for_every(members: type[_Member], given: Mapping[_Member, _Value]) -> Mapping[_Member, _Value]:
    """The mapping as it is. One that leaves a member out fails where it is made, not where that is met."""
    left_out = ", ".join(str(member) for member in members if member not in given)
    assert not left_out, f"nothing is said of {left_out}"
    return given
