"""Keys and values that are one value each, as Kafka's own serializers write them: text, a number, bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from thermocline.rules.column_types import ColumnType
from thermocline.rules.decode.formats import Refusals
from thermocline.rules.decode.framing import HeadOf, no_heads
from thermocline.rules.definition import Column

__all__ = ["PlainDocuments", "header_value"]


class PlainDocuments:
    """Reads one value into one column; see `Documents`."""

    def __init__(self, format_: str, columns: Sequence[Column], required: Sequence[str]) -> None:
        """Prepares for one of ``definition.ONE_COLUMN``; its columns are as that says, or there are none."""
        self._columns = columns
        self._required = required
        self._read = _READERS[format_]

    def read(
        self,
        texts: Sequence[bytes | None],
        refused: Refusals,
        head_of: HeadOf = no_heads,  # noqa: ARG002  (no schema is named)
    ) -> dict[str, list[Any]]:
        """See `Documents`."""
        found: dict[str, list[Any]] = {}
        for column in self._columns:
            values: list[Any] = []
            for index, text in enumerate(texts):
                try:
                    values.append(None if text is None else self._read(text, column.type))
                except ValueError as error:
                    refused[index] = (column, f"{column.name} ({column.type}): {error}")
                    values.append(None)
                if text is None and column.name in self._required:
                    refused[index] = (column, f"{column.name} ({column.type}): missing")
            found[column.name] = values
        return found


def header_value(content: bytes, type_: ColumnType) -> Any:
    """A header's value, of a type as the definition allows it. Raises `ValueError`."""
    return content if type_.python is bytes else _text(content, type_)


def _text(content: bytes, type_: ColumnType) -> Any:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    assert type_.of_text is not None, "no plain column"
    return type_.of_text(text)


def _big_endian(width: int) -> Callable[[bytes, ColumnType], int]:
    def read(content: bytes, _: ColumnType) -> int:
        if len(content) != width:
            raise ValueError(f"{len(content)} bytes, not {width}")
        return int.from_bytes(content, signed=True)

    return read


def _bytes(content: bytes, type_: ColumnType) -> Any:
    assert type_.entry.of_bytes is not None, "no plain column"
    return type_.entry.of_bytes(content)


_READERS: Final[dict[str, Callable[[bytes, ColumnType], Any]]] = {
    "string": _text,
    "uuid": _text,
    "int": _big_endian(4),
    "long": _big_endian(8),
    "bytes": _bytes,
}
