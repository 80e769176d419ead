"""Sentences about what a sample of records does not tell, and what depends on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from thermocline.rules.recognise.key import Key
from thermocline.rules.recognise.records import SampledRecord, Topic
from thermocline.rules.recognise.values import Documents

__all__ = ["ENTITY", "unknowns"]

CANDIDATES_SHOWN_MAX: Final = 5
HEADERS_SHOWN_MAX: Final = 5
ENTITY: Final = (
    "entity: which leading columns of the key a lookup gives; all of them, unless entity says fewer, and it "
    "can't be altered later"
)
"""What somebody may say beforehand."""
_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000


def unknowns(topic: Topic, records: Sequence[SampledRecord], key: Key, values: Documents) -> Iterator[str]:
    """What a person should know, or decide, before a table is created."""
    yield from _deletes(records, key, values)
    yield from _partitions(topic, records, key)
    if key.columns:
        yield (
            "order: of a key's records the last one in its partition counts; if they may come out of order, "
            "set sequence_by, which can't be altered later"
        )
    yield _retention(topic)
    yield from _absent(key, values)
    if values.envelope == "debezium" and values.format == "json" and not values.is_declared:
        yield (
            "times: without schemas in the events, dates and times of the database are integers; give such a "
            'column its epoch: { type = "timestamptz", epoch = "us" }'
        )
    yield from _headers(records)


def _deletes(records: Sequence[SampledRecord], key: Key, values: Documents) -> Iterator[str]:
    tombstones = sum(not one.value for one in records)
    if key.is_in_value:
        if tombstones:
            yield f"deletes: {tombstones:,} records have no value, and are bad: the key is in the value"
        return
    if tombstones or values.deletes:
        return
    if values.envelope == "plain":
        yield (
            "deletes: no record without a value was seen; if a field or a header says that a row is gone, "
            "set delete_when, which can't be altered later"
        )


def _partitions(topic: Topic, records: Sequence[SampledRecord], key: Key) -> Iterator[str]:
    if key.spellings:
        yield (
            f"keys: {key.spellings:,} are written in more than one way (blanks, or the order of fields), so "
            "their records may be in several partitions"
        )
    if topic.partitions < 2 or not key.columns:
        return
    places: defaultdict[bytes, set[int]] = defaultdict(set)
    for one in records:
        if one.key is not None:
            places[one.key].add(one.partition)
    several = sum(len(partitions) > 1 for partitions in places.values())
    found = f"{several:,} of the {len(places):,} keys that were seen are in several"
    if not records:
        found = "there is no record yet"
    if key.is_in_value:
        found = "the key is in the value, and need not decide the partition"
    yield f"partitions: whether all records of a key are in one partition is not known; {found}"


def _retention(topic: Topic) -> str:
    if topic.is_hidden:
        return "retention: how long the topic keeps records is not known, as its settings can't be read"
    if topic.is_compacted and topic.kept_ms is None:
        return "retention: the topic is compacted, so it should have the last record of every key"
    if topic.kept_ms is None:
        return "retention: the topic deletes no record for its age; whether others delete some is not known"
    hours = topic.kept_ms // _HOUR_MS
    kept = f"{topic.kept_ms // _DAY_MS:,} days" if hours >= 48 else f"{hours:,} hours"
    return f"retention: the topic keeps records for {kept}; rows that were last written before are not in it"


def _absent(key: Key, values: Documents) -> Iterator[str]:
    if (
        key.columns
        and values.envelope == "plain"
        and any("missing in" in one.evidence for one in values.fields)
    ):
        yield (
            "absent fields: they set null; if a record is to leave such a column as it is, set "
            "partial_updates = true, which can't be altered later"
        )
    if key.candidates:
        names = ", ".join(key.candidates[:CANDIDATES_SHOWN_MAX])
        yield f"key: if fields of the value identify a row, name them with --key; all records have {names}"
    if len(key.columns) > 1:
        yield ENTITY


def _headers(records: Sequence[SampledRecord]) -> Iterator[str]:
    names = list(
        dict.fromkeys(name for one in records for name, _ in one.headers if not name.startswith("__"))
    )
    if names:
        shown = ", ".join(names[:HEADERS_SHOWN_MAX])
        yield f'headers: {shown}; a column may read one: {{ type = "string", header = "..." }}'
