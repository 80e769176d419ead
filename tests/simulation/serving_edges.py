"""Puts the machine of the simulation in the place of disk, LMDB, threads and boot, for all of serving.

What is dear and always the same (decoders, definitions as text, records as stored) is made once, by the
product's own code, and used in all histories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from unittest.mock import patch

from tests.simulation import disk, environments
from tests.simulation.disk import MemoryDisk, MemoryPath
from tests.simulation.records import (
    CHANGING,
    DEFINITION,
    DEFINITIONS_MAX,
    PARTIAL,
    definition_json,
    other_columns,
)
from thermocline.kafka.facts import RecordChunk, TopicRecords
from thermocline.rules.decode import Decoded, decoder_for
from thermocline.rules.definition import Column, LiveTable
from thermocline.rules.headers import HeadersOf
from thermocline.rules.routing import NO, Texts
from thermocline.serving.cold.row_json import RowJson
from thermocline.serving.hot import disk as real_disk
from thermocline.serving.hot import environment as real_environment
from thermocline.serving.hot import leases as real_leases
from thermocline.serving.hot.record import FLAGS_START, HEADER, PLACE, PLACE_START, stored_records


@dataclass(slots=True)
class Machine:
    """One machine: its disk, this run of it, and the leases that its processes keep alive."""

    disk: MemoryDisk
    process: Callable[[], str]
    boots: int = 0
    booted_at: float = 0.0
    leases: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def boot_id(self) -> str:
        """What tells this run of the machine from others."""
        return f"boot {self.boots}"


class Running:
    """The machine of the history that is running."""

    machine: Machine


@contextmanager
def serving_simulated() -> Iterator[None]:
    """For as long as the block runs, serving is on the machine of the simulation.

    Real paths go on being real. Everything that takes millions of records to happen does with dozens.
    """
    with ExitStack() as stack:

        def put(target: str, new: Any) -> None:
            stack.enter_context(patch(target, new))

        for name in ("free_bytes", "try_lock", "touch", "stamps"):
            put(
                f"thermocline.serving.hot.disk.{name}", _either(getattr(disk, name), getattr(real_disk, name))
            )
        opened = _either(environments.open_environment, real_environment.open_environment)
        put("thermocline.serving.hot.generation.open_environment", opened)
        put("thermocline.serving.hot.leases.keep_alive", _keep_alive)
        put("thermocline.serving.hot.manifest.boot_id", lambda: Running.machine.boot_id)
        put("thermocline.serving.hot.tier_folder.boot_id", lambda: Running.machine.boot_id)
        put("thermocline.serving.hot.tier.stored_records", _stored_records)
        put("thermocline.serving.tail.feed.decoder_for", _decoder)
        put("thermocline.serving.read.lookup.RowJson", lru_cache(DEFINITIONS_MAX)(RowJson))
        stack.enter_context(patch.object(LiveTable, "to_json", definition_json))
        put("thermocline.serving.hot.tier.GENERATION_BYTES_MAX", 5 * environments.PAGE_BYTES)
        put("thermocline.serving.hot.tier.MAP_BYTES", (1 << 20) + 60 * environments.PAGE_BYTES)
        put("thermocline.serving.hot.tier.GENERATIONS_MAX", 2)
        put("thermocline.serving.hot.tier.DISK_FREE_BYTES_MIN", 1)
        put("thermocline.serving.hot.merge.STEP_RECORDS", 3)
        put("thermocline.serving.hot.scan.BLOCK_RECORDS", 3)
        yield


class _RememberingDecoder:
    """Decodes each pair of key and value once, and knows its stored form then."""

    def __init__(self, definition: LiveTable) -> None:
        self._definition = definition
        self._decoder = decoder_for(definition)
        self._known: dict[tuple[bytes | None, bytes | None], tuple[Decoded, tuple[bytes, bytes] | None]] = {}

    def decode(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], _: HeadersOf, topic: str
    ) -> _Decoded:
        """Like a decoder, but only for ``_stored_records``."""
        assert topic
        records = [self._record(key, value) for key, value in zip(keys, values, strict=True)]
        bad = [replace(one.bad[0], index=at) for at, (one, stored) in enumerate(records) if stored is None]
        stored = [(place, stored) for place, (_, stored) in enumerate(records) if stored is not None]
        return _Decoded(stored, bad)

    def _record(self, key: bytes | None, value: bytes | None) -> tuple[Decoded, tuple[bytes, bytes] | None]:
        known = self._known.get((key, value))
        if known is None:
            decoded = self._decoder.decode([key], [value])
            one = TopicRecords.of(RecordChunk(DEFINITION.topics[0], 0, [key], [value], [0], [0]))
            stored = next(stored_records(self._definition, 0, one, decoded, [0])) if decoded.good else None
            known = self._known[key, value] = (decoded, stored)
        return known


@dataclass(slots=True)
class _Decoded:
    good: list[tuple[int, tuple[bytes, bytes]]]
    bad: list[Any]
    filtered: tuple[int, ...] = ()


def _stored_records(
    definition: LiveTable,
    number: int,
    records: TopicRecords,
    decoded: _Decoded,
    partition_times_ms: Sequence[int],
) -> Iterator[tuple[bytes, bytes]]:
    for index, (key, value) in decoded.good:
        times = records.timestamps_ms[index], partition_times_ms[index]
        header = HEADER.pack(records.offsets[index], *times, value[FLAGS_START])
        place = PLACE.pack(number, records.partitions[index])
        yield key[:PLACE_START] + place, header + value[HEADER.size :]


class _Routed:
    """Takes the records of topics that are the table's, and filters the others."""

    def __init__(self, definition: LiveTable, inner: _RememberingDecoder) -> None:
        self._route, self._inner = definition.route, inner

    def decode(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], headers_of: HeadersOf, topic: str
    ) -> _Decoded:
        """Like a decoder."""
        texts = dict.fromkeys(self._route.sources, Texts([topic]))
        if self._route.verdicts(texts, 1)[0] == NO:
            return _Decoded([], [], tuple(range(len(keys))))
        return self._inner.decode(keys, values, headers_of, topic)


def _decoder(definition: LiveTable, _: object) -> _RememberingDecoder | _Routed:
    inner = _decoder_of(definition.partial_updates, other_columns(definition))
    return _Routed(definition, inner) if definition.route else inner


@lru_cache(DEFINITIONS_MAX)
def _decoder_of(is_partial: bool, columns: tuple[Column, ...]) -> _RememberingDecoder:
    definition = PARTIAL if is_partial else DEFINITION
    return _RememberingDecoder(replace(CHANGING, columns=columns) if columns else definition)


def _either(simulated: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(path: Any, *rest: Any, **named: Any) -> Any:
        return (simulated if isinstance(path, MemoryPath) else real)(path, *rest, **named)

    return chosen


_keep_alive_really = real_leases.keep_alive


def _keep_alive(lease: Any) -> None:
    if not isinstance(lease.path, MemoryPath):
        _keep_alive_really(lease)
        return
    machine = Running.machine
    machine.leases.append((machine.process(), lease))
