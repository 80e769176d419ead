"""Records that a table's contract does not let in: bad, by what changed in their writers' schemas.

A rule of decoding, so that ingest and servers agree. A record counts as what its writer's schema says,
whether or not it makes use of what changed in it. Deletes without a value have no such schema. Records that
are not the table's are not judged, also where they delete a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Final

from thermocline.rules.contract.changes import KEY, judged_parts, modes_of, schema_changes
from thermocline.rules.contract.modes import Kind, Mode
from thermocline.rules.contract.writers import Part
from thermocline.rules.decode.framing import (
    KEY_HEADER,
    VALUE_HEADER,
    grouped_by_head,
    id_length,
    indexes_length,
    readable_heads_in,
    schema_id,
)
from thermocline.rules.decode.record import Bad, Decoded, Decoder, Stage
from thermocline.rules.decode.schema_documents import ID_MAX, WriterSchemas
from thermocline.rules.definition import LiveTable
from thermocline.rules.headers import HeadersOf, no_headers
from thermocline.text.shown import json_text

__all__ = ["REFUSED", "ContractDecoder", "Head", "heads_of", "is_refusing"]

REFUSED: Final = "the contract refuses schema"
"""What every reason begins with."""
JUDGED_MAX: Final = 1_000
"""Schemas whose judgement is kept: a topic has a handful, and garbage names millions."""
_LENGTHS: Final = {"avro": (id_length, 5), "json_schema": (id_length, 5), "protobuf": (indexes_length, 6)}


@dataclass(frozen=True, slots=True)
class Head:
    """What names a writer's schema, in the keys or the values of records."""

    part: Part
    head: bytes


def is_refusing(definition: LiveTable) -> bool:
    """Whether there are changes that make records bad."""
    formats = [part.format for part in judged_parts(definition)]
    return any(definition.contract.uses(mode, of) for mode in (Mode.QUARANTINE, Mode.STOP) for of in formats)


def heads_of(
    parts: Sequence[Part],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers_of: HeadersOf,
) -> dict[Head, list[int]]:
    """The records by what names the schemas of each of their parts; without those of which nothing does."""
    found: dict[Head, list[int]] = {}
    for part in parts:
        length_of, short = _LENGTHS[part.format]
        texts, header = (keys, KEY_HEADER) if part.name == KEY else (values, VALUE_HEADER)
        groups = grouped_by_head(
            texts, readable_heads_in(headers_of, header), length_of, short, lambda _index, _why: None
        )
        for (head, _), indexes in groups.items():
            found.setdefault(Head(part, head), []).extend(indexes)
    return found


class ContractDecoder:
    """Decodes as another decoder does, and makes bad what the contract does not let in; see `Decoder`."""

    def __init__(self, definition: LiveTable, decoder: Decoder, schemas: WriterSchemas) -> None:
        """For the records of that table, whose schemas are asked for as decoding does."""
        self._definition = definition
        self._decoder = decoder
        self._schemas = schemas
        self._parts = judged_parts(definition)
        self._judged: dict[Head, str] = {}

    def decode(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers_of: HeadersOf = no_headers,
        topic: str | None = None,
    ) -> Decoded:
        """See `Decoder`. What is bad anyway stays bad for its own reason."""
        decoded = self._decoder.decode(keys, values, headers_of, topic)
        ours = decoded.ours_of(len(values))
        heads = heads_of(
            self._parts,
            [keys[index] for index in ours],
            [values[index] for index in ours],
            lambda place: headers_of(ours[place]),
        )
        refused: dict[int, str] = {}
        for head, places in heads.items():
            why = self._refusal(head)
            if why:
                refused.update((ours[place], why) for place in places)
        return _without(decoded, refused, self._definition) if refused else decoded

    def _refusal(self, head: Head) -> str:
        """Why records of a schema are bad; empty where they are not."""
        if head in self._judged:
            return self._judged[head]
        id_ = schema_id(head.head)
        if isinstance(id_, int) and id_ > ID_MAX:
            return ""  # decoding says so
        schema = self._schemas.of(id_)
        if schema.problem:
            return ""  # the same; it may be gone when it is asked for again
        changes = schema_changes(self._definition, head.part, schema, head.head)
        refused = [
            f"{change} ({change.kind} = {json_text(str(mode))})"
            for change, mode in modes_of(self._definition, changes, head.part)
            if _is_refused(change.kind, mode)
        ]
        why = f"{REFUSED} {id_}: {'; '.join(refused)}" if refused else ""
        if len(self._judged) >= JUDGED_MAX:
            self._judged.clear()
        self._judged[head] = why
        return why


def _is_refused(kind: Kind, mode: Mode) -> bool:
    """Of a type that is wider, decoding itself refuses each value that does not fit."""
    return mode is Mode.STOP or (mode is Mode.QUARANTINE and kind is not Kind.WIDER_TYPES)


def _without(decoded: Decoded, refused: Mapping[int, str], definition: LiveTable) -> Decoded:
    """The same without rows that are refused, which are bad instead."""
    kept = [index not in refused for index in decoded.good]  # safety: contract-refuses
    bad = list(decoded.bad)
    for place, index in enumerate(decoded.good):
        if index in refused:
            key = tuple(decoded.columns[name][place] for name in definition.key) or None
            bad.append(Bad(index, Stage.CONTRACT, refused[index], key))
    return replace(
        decoded,
        good=list(compress(decoded.good, kept)),
        columns={name: list(compress(values, kept)) for name, values in decoded.columns.items()},
        tombstones=list(compress(decoded.tombstones, kept)),
        bad=sorted(bad, key=lambda one: one.index),
        absent=None if decoded.absent is None else list(compress(decoded.absent, kept)),
    )
