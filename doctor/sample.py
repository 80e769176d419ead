"""Samples of a table's newest records: their keys as bytes and as the table reads them, and their sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.kafka.log import read_ranges
from thermocline.rules.decode import decoder_for, key_table
from thermocline.rules.decode.unread import Sampled, UnreadFields
from thermocline.rules.keys import encode_table

if TYPE_CHECKING:
    from thermocline.doctor.check import Examination
    from thermocline.rules.decode import Decoder
    from thermocline.rules.definition import LiveTable

__all__ = ["RECORDS_MAX", "Place", "Sample", "sample_of"]

RECORDS_MAX: Final = 20_000
"""Of a table: read and decoded in about a second."""
PARTITION_RECORDS_MAX: Final = 5_000
BYTES_MAX: Final = 64 << 20
EXAMPLES_MAX: Final = 3


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a record stands."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(slots=True)
class Sample:
    """What some of the newest records show.

    ``keys``: by the bytes of a key as the table has it, the first record of each spelling of it in each
    partition. ``bad`` are reasons why records are bad, each with an example; ``unread`` are fields that no
    column is read from.
    """

    definition: LiveTable
    records: int = 0
    key_and_value_bytes: int = 0
    bad_records: int = 0
    bad: dict[str, Place] = field(default_factory=dict)
    unread: Sampled = field(default_factory=Sampled)
    keys: dict[bytes, dict[tuple[bytes | None, str, int], Place]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    @property
    def bytes_per_record(self) -> float:
        """The mean size of key and value."""
        return self.key_and_value_bytes / self.records if self.records else 0.0

    def take(self, chunk: RecordChunk, decoder: Decoder, fields: UnreadFields) -> None:
        """Notes the records of a chunk."""
        self.records += len(chunk.offsets)
        self.key_and_value_bytes += sum(len(part or b"") for part in (*chunk.keys, *chunk.values))
        decoded = decoder.decode(chunk.keys, chunk.values, chunk.headers_of, chunk.topic)
        count = max(len(chunk.values), 1)
        self.unread += fields.of(chunk.values, count, chunk.headers_of, decoded.others)
        self.bad_records += len(decoded.bad)
        for one in decoded.bad:
            if len(self.bad) < EXAMPLES_MAX:
                self.bad.setdefault(one.reason, Place(chunk.topic, chunk.partition, chunk.offsets[one.index]))
        if not self.definition.merging.is_keyed or not decoded.good:
            return
        partitions = [chunk.partition] * len(chunk.offsets)
        table = key_table(self.definition, decoded, chunk.topic, partitions, chunk.offsets)
        keys = encode_table(self.definition, table)
        for index, key in zip(decoded.good, keys.to_pylist(), strict=True):
            spelled = (chunk.keys[index], chunk.topic, chunk.partition)
            self.keys[key].setdefault(spelled, Place(chunk.topic, chunk.partition, chunk.offsets[index]))


def sample_of(examination: Examination, name: str) -> Sample:
    """The sample of a table, read once."""
    if name not in examination.samples:
        examination.samples[name] = _read(examination, name)
    return examination.samples[name]


def _read(examination: Examination, name: str) -> Sample:
    definition = examination.definition(name)
    sample = Sample(definition)
    ranges = _ranges(examination, examination.topics_of(name))
    if not ranges:
        return sample
    registry = examination.settings.registry.client()
    decoder, fields = decoder_for(definition, registry), UnreadFields(definition, registry)
    chunks = read_ranges(examination.settings.kafka.client_config(), ranges, name)
    with closing(chunks):  # type: ignore[type-var]  # a generator, which closes its consumer
        for chunk in chunks:
            sample.take(chunk, decoder, fields)
            if (
                sample.records >= RECORDS_MAX or sample.key_and_value_bytes >= BYTES_MAX
            ):  # safety: doctor-sample-bounded
                break
    return sample


def _ranges(examination: Examination, topics: Sequence[str]) -> list[OffsetRange]:
    """The newest records of each partition, evenly of all of them."""
    if not topics:
        return []
    assert examination.log is not None
    starts, ends = examination.log.bounds(topics)
    partitions = max(len(list(ends.items())), 1)
    most = max(1, min(PARTITION_RECORDS_MAX, RECORDS_MAX // partitions))
    return [
        OffsetRange(topic, partition, max(starts.get((topic, partition)), end - most), end)
        for topic, partition, end in ends.items()
        if end > starts.get((topic, partition))
    ]
