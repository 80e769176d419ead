"""The row that a record replaces, and the other records of its key that are not committed yet."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.kafka.facts import RecordChunk
    from thermocline.rules.decode import Decoder
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.seam import Seam
    from thermocline.settings import Settings

HOT_RECORDS_MAX: Final = 1_000_000
"""Not committed yet, of all partitions: more would take longer to read than somebody waits."""
LISTED_MAX: Final = 20

Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The records of a key from the seam on, in their order; None where there are too many to look at."""

    records: tuple[dict[str, Any], ...] | None
    count: int


def replaced(
    settings: Settings,
    definition: LiveTable,
    state: SnapshotState,
    key: Sequence[Any],
    place: Place,
    ends: Seam,
) -> dict[str, Any]:
    """The cold row of the key, where it came from, and the records of the key that the table lacks yet."""
    topic, partition, offset = place
    waiting = _waiting(settings, definition, state.seam, ends, key)
    is_committed = offset < state.seam.get((topic, partition))
    document: dict[str, Any] = {
        "snapshot_id": str(state.snapshot_id),
        "committed": is_committed,
        "row": _cold_row(settings, definition, state, key),
        "not_committed": waiting.count,
    }
    if waiting.records is not None:
        others = [
            one | {"is": _order(one, place)}
            for one in waiting.records
            if one["record"] != f"{topic}/{partition}@{offset}"
        ]
        document["others"] = others[-LISTED_MAX:]
        document["others_count"] = len(others)
    return document


def _order(one: Mapping[str, Any], place: Place) -> str:
    """Where another record of the key stands: the later one of a partition wins there."""
    if (one["topic"], one["partition"]) != place[:2]:
        return "in another partition"
    return "earlier" if one["offset"] < place[2] else "later"


def condition_of(definition: LiveTable, key: Sequence[Any]) -> str:
    """The condition that a row has that key."""
    from thermocline.text.shown import json_form

    return " AND ".join(
        f"{_quoted(column.name)} = {_literal(json_form(value))}"
        for column, value in zip(definition.key_columns, key, strict=True)
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def _cold_row(
    settings: Settings, definition: LiveTable, state: SnapshotState, key: Sequence[Any]
) -> dict[str, Any] | None:
    """The row of the key in the snapshot alone, with the record that it came from."""
    from thermocline.rules.read_point import ReadPoint
    from thermocline.serving.read import private
    from thermocline.serving.read.wanted import Wanted

    names = [column.name for column in definition.given_columns]
    wanted = Wanted(names, condition_of(definition, key))
    at = ReadPoint(state.snapshot_id, state.seam, state.seam)
    sink = io.BytesIO()
    private.extract(settings, definition.name, wanted, "jsonl", sink, at, lambda _: None)
    rows = [json.loads(line) for line in sink.getvalue().splitlines() if line]
    return rows[0] if rows else None


def _waiting(
    settings: Settings, definition: LiveTable, seam: Seam, ends: Seam, key: Sequence[Any]
) -> Waiting:
    from thermocline.kafka.facts import OffsetRange
    from thermocline.kafka.log import read_ranges
    from thermocline.rules.decode import decoder_for

    ranges = [
        OffsetRange(topic, partition, seam.get((topic, partition)), end)
        for topic, partition, end in ends.items()
        if end > seam.get((topic, partition))
    ]
    count = sum(one.end - one.first for one in ranges)
    if count > HOT_RECORDS_MAX:
        return Waiting(None, count)
    decoder = decoder_for(definition, settings.registry.client())
    found = [
        one
        for chunk in read_ranges(settings.kafka.client_config(), ranges, definition.name)
        for one in _of_key(definition, decoder, chunk, tuple(key))
    ]
    return Waiting(tuple(sorted(found, key=_stands_at)), count)


def _stands_at(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return one["timestamp_ms"], one["topic"], one["partition"], one["offset"]


def _of_key(
    definition: LiveTable, decoder: Decoder, chunk: RecordChunk, key: tuple[Any, ...]
) -> Iterator[dict[str, Any]]:
    """The records of a chunk that have the key, bad ones with a key that could be read included."""
    decoded = decoder.decode(chunk.keys, chunk.values, chunk.headers_of, chunk.topic)
    columns = [decoded.columns[name] for name in definition.key]
    for place, (index, *values) in enumerate(zip(decoded.good, *columns, strict=True)):
        if tuple(values) == key:
            yield _told(chunk, index, "deletes the row" if decoded.tombstones[place] else "sets the row")
    for bad in decoded.bad:
        if bad.key == key:
            yield _told(chunk, bad.index, f"bad: {bad.reason}")


def _told(chunk: RecordChunk, index: int, what: str) -> dict[str, Any]:
    return {
        "record": f"{chunk.topic}/{chunk.partition}@{chunk.offsets[index]}",
        "topic": chunk.topic,
        "partition": chunk.partition,
        "offset": chunk.offsets[index],
        "timestamp_ms": chunk.timestamps_ms[index],
        "does": what,
    }


def words_of(document: Mapping[str, Any], record: str, is_bad: bool) -> Iterator[str]:
    """What a record replaces, for people; a bad one replaces nothing."""
    row = document["row"]
    snapshot = f"snapshot {document['snapshot_id']}"
    if row is None:
        yield f"{snapshot} has no row of this key"
    else:
        origin = f"{row['_kafka_topic']}/{row['_kafka_partition']}@{row['_kafka_offset']}"
        values = {name: value for name, value in row.items() if not name.startswith("_kafka_")}
        came = "which is this record" if origin == record else f"from {origin}"
        yield f"{snapshot} has the row {json.dumps(values, ensure_ascii=False)}, {came}"
    if not document["committed"]:
        yield "the record is not committed yet"
    elif is_bad:
        yield "ingest has read the record, and made no row of it"
    else:
        yield "the record is committed"
    if "others" not in document:
        yield f"{document['not_committed']:,} records are not committed yet: too many to look for others here"
        return
    for one in document["others"]:
        yield f"not committed yet, of the same key, {one['is']}: {one['record']} {one['does']}"
    hidden = document["others_count"] - len(document["others"])
    if hidden:
        yield f"and {hidden:,} more before these"
