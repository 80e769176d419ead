"""Keys and values that are one value each, as Kafka's own serializers write them: text, a number, bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.decode.formats import Refusals
from thermocline.rules.decode.framing import HeadOf, no_heads
from thermocline.rules.definition import Column
from thermocline.rules.topic_parts import topic_part

__all__ = ["PlainDocuments", "header_reader", "read_topic"]

_DAY: Final = re.compile(r"[0-9]{8}")


class PlainDocuments:
    """Reads one value into one column; see `Documents`."""

    def __init__(self, format_: str, columns: Sequence[Column], required: Sequence[str]) -> None:
        """Prepares for one of ``definition.ONE_COLUMN``; its columns are as that says, or there are none."""
        self._columns = [(column, _reader(format_, column.type)) for column in columns]
        self._required = required

    def read(
        self,
        texts: Sequence[bytes | None],
        refused: Refusals,
        head_of: HeadOf = no_heads,  # noqa: ARG002  (no schema is named)
    ) -> dict[str, list[Any]]:
        """See `Documents`."""
        found: dict[str, list[Any]] = {}
        for column, read in self._columns:
            values: list[Any] = []
            for index, text in enumerate(texts):
                try:
                    values.append(None if text is None else read(text))
                except ValueError as error:
                    refused[index] = (column, f"{column.name} ({column.type}): {error}")
                    values.append(None)
                if text is None and column.name in self._required:
                    refused[index] = (column, f"{column.name} ({column.type}): missing")
            found[column.name] = values
        return found


def header_reader(type_: ColumnType) -> Callable[[bytes], Any]:
    """What reads a header's value, of a type as the definition allows it. It raises `ValueError`."""
    return bytes if type_.python is bytes else _text(type_)


def read_topic(column: Column, topic: str) -> Any:
    """The value of a column that is a part of the topic's name. Raises `ValueError` where it has none.

    A date may be of the form YYYYMMDD there.
    """
    text = topic_part(column.topic, topic)
    if text is None:
        raise ValueError(f"the name of topic {topic} has no such part")
    is_compact = column.type.kind is Kind.DATE and _DAY.fullmatch(text)
    spelled = f"{text[:4]}-{text[4:6]}-{text[6:]}" if is_compact else text
    of_text = column.type.of_text
    assert of_text is not None, "no column of a topic"
    try:
        return of_text(spelled)
    except ValueError as error:
        raise ValueError(f"{text} in the name of topic {topic}: {error}") from None


def _reader(format_: str, type_: ColumnType) -> Callable[[bytes], Any]:
    if format_ in _WIDTHS:
        return _big_endian(_WIDTHS[format_])
    if format_ == "bytes":
        assert type_.entry.of_bytes is not None, "no plain column"
        return type_.entry.of_bytes
    return _text(type_)


_WIDTHS: Final = {"int": 4, "long": 8}
"""The bytes of each number, by its format."""


def _text(type_: ColumnType) -> Callable[[bytes], Any]:
    of_text = type_.of_text
    assert of_text is not None, "no plain column"

    def read(content: bytes) -> Any:
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise ValueError("not UTF-8") from None
        return of_text(text)

    return read


def _big_endian(width: int) -> Callable[[bytes], int]:
    def read(content: bytes) -> int:
        if len(content) != width:
            raise ValueError(f"{len(content)} bytes, not {width}")
        return int.from_bytes(content, signed=True)

    return read
