"""The name of a writer's schema: bytes before a record's body, or a header of the record.

Source: Confluent Platform, "Wire format": a zero byte and a 4-byte id, or a byte 1 and a 16-byte GUID, which
stand before the body or, by newer serializers, in the header ``__key_schema_id`` or ``__value_schema_id``. Of
Protobuf, the place of the message in the schema follows, as numbers in the zigzag form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from thermocline.rules.headers import HeadersOf, HeadersUnreadable, last_header

__all__ = [
    "KEY_HEADER",
    "VALUE_HEADER",
    "Group",
    "HeadOf",
    "SchemaId",
    "grouped_by_head",
    "heads_in",
    "id_length",
    "indexes_length",
    "message_indexes",
    "no_heads",
    "readable_heads_in",
    "schema_id",
]

SchemaId = int | UUID
HeadOf = Callable[[int], bytes | None]
"""What a header of the record with an index says of its schema; None where there is no such header."""
Group = tuple[bytes, int]
"""What names a schema, and where the bodies of its records begin."""
LengthOf = Callable[[bytes], int]
Refuse = Callable[[int, str], None]

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"
ID_LENGTHS: Final = {0: 5, 1: 17}
"""How many bytes name a schema, by the first of them."""
INDEXES_MAX: Final = 100
"""Messages within each other that lead to one: no compiler of Protobuf takes more."""
INDEX_MAX: Final = 2**31 - 1


def no_heads(_: int) -> None:
    """Of records whose headers don't count."""


def heads_in(headers_of: HeadersOf, name: str) -> HeadOf:
    """What the headers of that name say."""

    def head_of(index: int) -> bytes | None:
        headers = headers_of(index)
        return last_header(headers, name) if headers else None

    return head_of


def readable_heads_in(headers_of: HeadersOf, name: str) -> HeadOf:
    """The same; of records whose headers can't be read, which decoding says, what names no schema."""
    head_of = heads_in(headers_of, name)

    def found(index: int) -> bytes | None:
        try:
            return head_of(index)
        except HeadersUnreadable:  # safety: contract-headers
            return b""

    return found


def schema_id(head: bytes) -> SchemaId:
    """The id or GUID at the beginning of what names a schema."""
    return UUID(bytes=head[1:17]) if head[0] else int.from_bytes(head[1:5])


def grouped_by_head(
    texts: Sequence[bytes | None],
    head_of: HeadOf,
    length_of: LengthOf,
    short: int,
    refuse: Refuse,
) -> dict[Group, list[int]]:
    """The records by what names their schema. Refuses those of which nothing does.

    ``length_of`` says how many bytes at the beginning name a schema, or raises `ValueError`; ``short`` is
    what it mostly says.
    """
    by_header: dict[bytes, list[int]] = {}
    by_beginning: dict[bytes, list[int]] = {}
    for index, text in enumerate(texts):
        if text is None:
            continue
        header = head_of(index)
        if header is not None:  # safety: schema-header
            by_header.setdefault(header, []).append(index)
            continue
        beginning = text[:short]
        try:
            by_beginning[beginning].append(index)
        except KeyError:
            by_beginning[beginning] = [index]
    groups = _of_headers(by_header, length_of, refuse)
    for beginning, indexes in by_beginning.items():
        if _is_whole(beginning, length_of):
            groups[beginning, len(beginning)] = indexes
        else:
            _add_each(groups, indexes, texts, length_of, refuse)
    return groups


def _of_headers(
    by_header: Mapping[bytes, list[int]], length_of: LengthOf, refuse: Refuse
) -> dict[Group, list[int]]:
    groups: dict[Group, list[int]] = {}
    for head, indexes in by_header.items():
        problem = _problem_of_header(head, length_of)
        if problem:
            for index in indexes:
                refuse(index, problem)
        else:
            groups[head, 0] = indexes
    return groups


def _add_each(
    groups: dict[Group, list[int]],
    indexes: Sequence[int],
    texts: Sequence[bytes | None],
    length_of: LengthOf,
    refuse: Refuse,
) -> None:
    """Adds records of which only each one's bytes say how many of them name its schema."""
    for index in indexes:
        text = texts[index] or b""
        try:
            head = text[: length_of(text)]
        except ValueError as error:
            refuse(index, f"it {error}")  # safety: avro-frame
        else:
            groups.setdefault((head, len(head)), []).append(index)


def _is_whole(beginning: bytes, length_of: LengthOf) -> bool:
    try:
        return length_of(beginning) == len(beginning)
    except ValueError:
        return False


def _problem_of_header(head: bytes, length_of: LengthOf) -> str:
    try:
        rest = len(head) - length_of(head)
    except ValueError as error:
        return f"the header that names its schema {error}"
    return f"the header that names its schema has {rest:,} bytes too many" if rest else ""


def id_length(text: bytes) -> int:
    """How many bytes name a schema of Avro or JSON. Raises `ValueError`."""
    length = ID_LENGTHS.get(text[0]) if text else None
    if length is None:
        first = f"begins with the byte {text[0]}" if text else "is empty"
        raise ValueError(f"{first}, not with 0 or 1 and a schema's id")
    if len(text) < length:
        raise ValueError(f"is too short for a schema's id: {len(text)} of {length} bytes")
    return length


def indexes_length(text: bytes) -> int:
    """How many bytes name a message of a Protobuf schema. Raises `ValueError`."""
    return _indexes(text)[1]


def message_indexes(head: bytes) -> tuple[int, ...]:
    """The place of a message: among those of the file, then among those within it, and so on."""
    return _indexes(head)[0]


def _indexes(text: bytes) -> tuple[tuple[int, ...], int]:
    count, at = _zigzag(text, id_length(text))
    if count == 0:
        return (0,), at  # short for the first message
    if not 0 < count <= INDEXES_MAX:
        raise ValueError(f"names its message by {count:,} numbers")
    numbers = []
    for _ in range(count):
        number, at = _zigzag(text, at)
        if not 0 <= number <= INDEX_MAX:  # safety: protobuf-index
            raise ValueError(f"names a message by the number {number:,}")
        numbers.append(number)
    return tuple(numbers), at


def _zigzag(text: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(text) or shift > 28:
            raise ValueError("does not say which message of its schema it is")
        byte = text[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
