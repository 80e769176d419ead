"""The published manifest of a snapshot: its files, its seam, the log and the definition that go with it.

Values only: where a manifest is kept is ``folder``'s, and what is made of it ``index``'s.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from thermocline.iceberg.catalog import ACCEPTED_PROPERTY
from thermocline.iceberg.files import DataFile
from thermocline.rules.identity import tombstones_matter_from_ms
from thermocline.rules.seam import Seam
from thermocline.serving.store.fed_by import FedBy

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.rules.definition import LiveTable

FORMAT: Final = 6


class ColdManifest(msgspec.Struct, frozen=True):
    """One snapshot, as published. ``source`` is as `source_of` gives it.

    ``tombstones_from_ms`` is from when on lost tombstones matter to it (`tombstones_matter_from_ms`).
    """

    format: int
    table_uuid: str
    location: str
    snapshot_id: int
    sequence_number: int
    timestamp_ms: int
    watermark_ms: int
    seam: str
    source: str
    tombstones_from_ms: int
    definition: str
    files: list[DataFile]


def source_of(table: Table, state: SnapshotState) -> str:
    """The log that feeds a snapshot: a topic that was deleted and made again is another one.

    So is one whose gap or whose new start was accepted: offsets from before it say nothing of those after it.
    """
    accepted = json.loads(table.properties.get(ACCEPTED_PROPERTY, "[]"))
    last = hashlib.blake2b(json.dumps(accepted[-1:]).encode(), digest_size=16).hexdigest()
    # safety: accepted-is-source
    return FedBy(state.cluster_id, state.topic_ids, last).to_text()


def manifest_of(
    table: Table, definition: LiveTable, state: SnapshotState, files: Sequence[DataFile]
) -> ColdManifest:
    """A snapshot of the table that holds these files, as it is published."""
    snapshot = table.snapshot_by_id(state.snapshot_id)
    return ColdManifest(
        format=FORMAT,
        table_uuid=str(table.metadata.table_uuid),
        location=table.location(),
        snapshot_id=state.snapshot_id,
        sequence_number=(snapshot.sequence_number or 0) if snapshot else 0,
        timestamp_ms=state.timestamp_ms,
        watermark_ms=state.watermark_ms,
        seam=state.seam.to_json(),
        source=source_of(table, state),
        tombstones_from_ms=tombstones_matter_from_ms(state, definition),
        definition=definition.to_json(),
        files=list(files),
    )


class Before(Protocol):
    """What was published, or is served: a manifest or what was made of one."""

    @property
    def table_uuid(self) -> str:
        """Which table it is of, its name apart."""

    @property
    def source(self) -> str:
        """The log, as `source_of` gives it."""

    @property
    def sequence_number(self) -> int:
        """Iceberg's number of the snapshot, which ascends."""

    @property
    def seam(self) -> Seam | str:
        """The snapshot's seam, maybe as JSON."""


def is_newer(new: ColdManifest, old: Before) -> bool:
    """Whether a snapshot goes on from another one; one that would be a step back does not."""
    if new.table_uuid != old.table_uuid:
        return True  # the table was dropped and created again
    old_seam = old.seam if isinstance(old.seam, Seam) else Seam.from_json(old.seam)
    # Of another log, or of one that was begun again, offsets can't be compared.
    # safety: other-log-is-newer
    goes_on = new.source != old.source or Seam.from_json(new.seam).at_least(old_seam)
    return new.sequence_number > old.sequence_number and goes_on
