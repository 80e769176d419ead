"""The sample, read by a proposed definition: the proof that it was recognised rightly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from thermocline.rules.decode import decoder_for
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable
from thermocline.rules.recognise.known_schemas import KnownSchemas
from thermocline.rules.recognise.records import SampledRecord, headers_of

__all__ = ["Reading", "read_by"]

REASONS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """How many records a definition reads, how many of these delete, and why others are bad.

    ``reasons`` are examples, each with the index of its record.
    """

    records: int
    deletes: int
    bad: int
    reasons: tuple[tuple[int, str], ...]


def read_by(
    definition: LiveTable, records: Sequence[SampledRecord], schemas: Mapping[SchemaId, WriterSchema]
) -> Reading:
    """Reads the records as ingest will."""
    decoder = decoder_for(definition, KnownSchemas(schemas))
    decoded = decoder.decode(
        [one.key for one in records],
        [one.value for one in records],
        lambda index: headers_of(records, index),
    )
    reasons: dict[str, int] = {}
    for bad in decoded.bad:
        reasons.setdefault(bad.reason, bad.index)
    examples = tuple((index, reason) for reason, index in list(reasons.items())[:REASONS_MAX])
    return Reading(len(records), sum(decoded.tombstones), len(decoded.bad), examples)
