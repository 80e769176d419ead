"""The values that clients return, and those that they take."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Protocol, Self
from uuid import UUID

Row = dict[str, Any]
"""A row's values by column: numbers, strings, booleans and None; nested values are dicts and lists. Times are
RFC 3339 strings, decimals and UUIDs are strings, binary is base64."""
Offsets = dict[str, dict[int, int]]
"""Topic → partition → offset."""
KeyValue = int | str | bytes | date | UUID

_PLACE: Final = re.compile(r"(.+)/(\d+)@(\d+)")


class Delivered(Protocol):
    """A record's place in the log, such as the `confluent_kafka.Message` that a delivery callback gets."""

    def topic(self) -> str | None:
        """Returns the topic."""
        ...

    def partition(self) -> int | None:
        """Returns the partition."""
        ...

    def offset(self) -> int | None:
        """Returns the offset."""
        ...


ReadAfter = Delivered | str | Iterable["Delivered | str"]
"""One or several records that an answer must include: delivery reports, or ``TOPIC/PARTITION@OFFSET``."""


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """Exactly what an answer reflects: a snapshot, and each partition's records in [seam, end).

    Two reads of a table at equal read points are equal.
    """

    snapshot_id: int
    seam: Offsets
    end: Offsets

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Reads a read point from the JSON of an answer."""
        return cls(int(body["snapshot_id"]), _offsets(body["seam"]), _offsets(body["end"]))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the read point that ``to_json`` wrote. Raises `ValueError` if the text is not one."""
        try:
            return cls.of(json.loads(text))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("it is no read point's JSON") from error

    def to_dict(self) -> dict[str, Any]:
        """Returns the read point in the form that JSON answers have."""
        offsets = {
            name: {topic: {str(p): at for p, at in parts.items()} for topic, parts in of.items()}
            for name, of in (("seam", self.seam), ("end", self.end))
        }
        return {"snapshot_id": str(self.snapshot_id), **offsets}

    def to_json(self) -> str:
        """Returns the text that ``thermocline extract --at`` and ``--since`` and ``views pin --at`` take."""
        return json.dumps(self.to_dict(), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that Kafka accepted but that doesn't match the table's definition; ``reason`` says why."""

    topic: str
    partition: int
    offset: int
    stage: str
    reason: str
    key: Mapping[str, Any] | None = None
    """The key columns' values by name; None if they could not be read."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Reads a record from its JSON. Members that a later server adds are ignored."""
        place = body["topic"], body["partition"], body["offset"]
        return cls(*place, body["stage"], body["reason"], body.get("key"))


@dataclass(frozen=True, slots=True)
class UnlistedRange:
    """A range of offsets, both included, in which the server refused more records than it lists."""

    topic: str
    partition: int
    offset_first: int
    offset_last: int

    @classmethod
    def all_of(cls, body: Mapping[str, Any]) -> tuple[Self, ...]:
        """Reads the ranges from the JSON of an answer."""
        listed = body.get("refused_unlisted", ())
        return tuple(
            cls(one["topic"], one["partition"], one["offset_first"], one["offset_last"]) for one in listed
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of one entity, sorted by key, or one row.

    ``age_seconds`` is the time since every partition was last read to its end; None if that never happened.
    ``stale`` is true if the age is above the server's ``serving.stale_after_seconds``.

    ``refused`` lists records that the table can't take. With ``read_after``, these are the ones that it names
    and earlier ones that may have the same keys. Without it, and only if there are no rows, these are the
    ones that may have the keys and aren't committed yet. ``refused_unlisted`` says where the server refused
    more records than it lists; a record of ``read_after`` in such a range may have been refused.
    """

    table: str
    rows: list[Row]
    read_point: ReadPoint
    age_seconds: float | None
    stale: bool
    refused: tuple[RefusedRecord, ...] = ()
    refused_unlisted: tuple[UnlistedRange, ...] = ()

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Reads an answer from its JSON."""
        refused = tuple(RefusedRecord.of(one) for one in body.get("refused", ()))
        point = ReadPoint.of(body["read_point"])
        fresh = body["age_seconds"], body["stale"]
        return cls(body["table"], body["rows"], point, *fresh, refused, UnlistedRange.all_of(body))

    @classmethod
    def all_of(cls, body: Mapping[str, Any]) -> list[Self]:
        """Reads the answers from the JSON of a batch, one per entity."""
        return [cls.of({**body, "rows": result["rows"]}) for result in body["results"]]


@dataclass(frozen=True, slots=True)
class Refused:
    """The records that the table can't take and that aren't committed yet, newest first in each partition.

    ``more`` is true if there are more of them. The other fields are those of `Answer`.
    """

    table: str
    records: tuple[RefusedRecord, ...]
    more: bool
    read_point: ReadPoint
    age_seconds: float | None
    stale: bool
    refused_unlisted: tuple[UnlistedRange, ...] = ()

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Reads the records from the JSON of an answer."""
        records = tuple(RefusedRecord.of(one) for one in body["refused"])
        point = ReadPoint.of(body["read_point"])
        fresh = body["age_seconds"], body["stale"]
        return cls(body["table"], records, body["more"], point, *fresh, UnlistedRange.all_of(body))


def key_text(value: KeyValue) -> str:
    """Returns a key column's value as text for a URL. Raises `TypeError` for other types."""
    match value:
        case bool():
            pass
        case int() | str() | UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case date():
            return value.isoformat()
    raise TypeError(
        f"a {type(value).__name__} can't be a key column's value: int, str, bytes, date and UUID can"
    )


def key_json(value: KeyValue) -> int | str:
    """Returns a key column's value for JSON: integers stay numbers, all else is text. Raises `TypeError`."""
    text = key_text(value)
    return value if isinstance(value, int) else text


def read_after_text(records: ReadAfter) -> str:
    """Returns the ``Thermocline-Read-After`` header, with the last of the records in each partition.

    Raises:
        ValueError: there is no record, a record wasn't delivered, or a text isn't TOPIC/PARTITION@OFFSET.
    """
    several = [records] if isinstance(records, str) or hasattr(records, "offset") else list(records)
    last: dict[tuple[str, int], int] = {}
    for one in several:
        for topic, partition, offset in _texts(one) if isinstance(one, str) else [_delivered(one)]:
            last[topic, partition] = max(offset, last.get((topic, partition), 0))
    if not last:
        raise ValueError("read_after names no record")
    return ", ".join(f"{topic}/{partition}@{offset}" for (topic, partition), offset in last.items())


def _texts(text: str) -> Iterable[tuple[str, int, int]]:
    for part in text.split(","):
        match = _PLACE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f'"{part.strip()}" is not of the form TOPIC/PARTITION@OFFSET')
        yield match[1], int(match[2]), int(match[3])


def _delivered(report: Any) -> tuple[str, int, int]:
    """Returns a record's place. confluent_kafka's reports have methods for it, other clients' attributes."""
    error = _given(report, "error") if hasattr(report, "error") else None
    topic, partition, offset = (_given(report, name) for name in ("topic", "partition", "offset"))
    if error is not None or topic is None or partition is None or offset is None or offset < 0:
        raise ValueError(f"the record was not delivered: {error or 'it has no offset'}")
    return topic, partition, offset


def _given(report: object, name: str) -> Any:
    value = getattr(report, name)
    return value() if callable(value) else value


def _offsets(body: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {topic: {int(number): at for number, at in parts.items()} for topic, parts in body.items()}
