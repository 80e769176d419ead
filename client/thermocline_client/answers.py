"""The values that answers are made of, and those that requests are made from."""

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
"""A row by column: numbers, strings, booleans, None; what is nested as dicts and lists. Times are RFC 3339
texts, decimals and UUIDs texts, binary base64."""
Offsets = dict[str, dict[int, int]]
"""Topic → partition → offset."""
KeyValue = int | str | bytes | date | UUID

_PLACE: Final = re.compile(r"(.+)/(\d+)@(\d+)")


class Delivered(Protocol):
    """Where a record is in the log, such as `confluent_kafka.Message` as a delivery report gets it."""

    def topic(self) -> str | None:
        """Its topic."""
        ...

    def partition(self) -> int | None:
        """Its partition."""
        ...

    def offset(self) -> int | None:
        """Its offset."""
        ...


ReadAfter = Delivered | str | Iterable["Delivered | str"]
"""Records that an answer must include: delivery reports, or ``TOPIC/PARTITION@OFFSET``; one or several."""


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """Exactly what an answer reflects: a snapshot, and of each partition the records in [seam, end).

    Reads of a table at equal read points are equal.
    """

    snapshot_id: int
    seam: Offsets
    end: Offsets

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """From the JSON of an answer."""
        return cls(int(body["snapshot_id"]), _offsets(body["seam"]), _offsets(body["end"]))

    @classmethod
    def parse(cls, text: str) -> Self:
        """From what ``to_json`` gave, kept for the next extract. Raises `ValueError`."""
        try:
            return cls.of(json.loads(text))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("it is no read point's JSON") from error

    def to_dict(self) -> dict[str, Any]:
        """The JSON of an answer."""
        offsets = {
            name: {topic: {str(p): at for p, at in parts.items()} for topic, parts in of.items()}
            for name, of in (("seam", self.seam), ("end", self.end))
        }
        return {"snapshot_id": str(self.snapshot_id), **offsets}

    def to_json(self) -> str:
        """As ``thermocline extract --at`` and ``--since`` and ``views pin --at`` take it."""
        return json.dumps(self.to_dict(), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that Kafka accepted, and that doesn't match the table's definition; ``reason`` says why."""

    topic: str
    partition: int
    offset: int
    stage: str
    reason: str
    key: Mapping[str, Any] | None = None
    """The key columns by name; None if they could not be read."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """From its JSON, of which a later server may say more."""
        place = body["topic"], body["partition"], body["offset"]
        return cls(*place, body["stage"], body["reason"], body.get("key"))


@dataclass(frozen=True, slots=True)
class UnlistedRange:
    """Between these offsets, both included, more records were refused than the server lists."""

    topic: str
    partition: int
    offset_first: int
    offset_last: int

    @classmethod
    def all_of(cls, body: Mapping[str, Any]) -> tuple[Self, ...]:
        """Those of an answer."""
        listed = body.get("refused_unlisted", ())
        return tuple(
            cls(one["topic"], one["partition"], one["offset_first"], one["offset_last"]) for one in listed
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of one entity, sorted by key, or one row.

    ``age_seconds``: since every partition was last read up to its end; None if it never was. ``stale``: that
    is more than the server's ``serving.stale_after_seconds``. ``refused``: records that the table can't take:
    those of ``read_after``, and earlier ones that may be of the same keys; without it, and where there are no
    rows, those that may be of the keys and aren't committed yet. ``refused_unlisted`` is where so many were
    refused that they are not listed: a record of ``read_after`` there may be one of them.
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
        """From the JSON of an answer."""
        refused = tuple(RefusedRecord.of(one) for one in body.get("refused", ()))
        point = ReadPoint.of(body["read_point"])
        fresh = body["age_seconds"], body["stale"]
        return cls(body["table"], body["rows"], point, *fresh, refused, UnlistedRange.all_of(body))

    @classmethod
    def all_of(cls, body: Mapping[str, Any]) -> list[Self]:
        """From the JSON of a batch's answer, one for each entity."""
        return [cls.of({**body, "rows": result["rows"]}) for result in body["results"]]


@dataclass(frozen=True, slots=True)
class Refused:
    """Records that aren't committed yet and that the table can't take, the newest of a partition first.

    ``more``: there are more of them than these. The rest is as in `Answer`.
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
        """From the JSON of an answer."""
        records = tuple(RefusedRecord.of(one) for one in body["refused"])
        point = ReadPoint.of(body["read_point"])
        fresh = body["age_seconds"], body["stale"]
        return cls(body["table"], records, body["more"], point, *fresh, UnlistedRange.all_of(body))


def key_text(value: KeyValue) -> str:
    """A key column's value in a URL. Raises `TypeError` where it can't be one."""
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
    """A key column's value in JSON: integers as numbers, all else as text. Raises as `key_text`."""
    text = key_text(value)
    return value if isinstance(value, int) else text


def read_after_text(records: ReadAfter) -> str:
    """The ``Thermocline-Read-After`` header: of each partition the last record named.

    Raises:
        ValueError: there is no record, one wasn't delivered, or a text isn't TOPIC/PARTITION@OFFSET.
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
    """Where a record is. Other clients' reports have attributes where confluent_kafka's have methods."""
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
