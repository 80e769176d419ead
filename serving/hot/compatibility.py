"""Checks that hot records can be laid over a snapshot: of its log and definition, from its seam on, whole."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from thermocline.rules.definition.stored import apart_from_topics
from thermocline.serving.store.fed_by import fed_by

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.seam import Seam


class Snapshot(Protocol):
    """What hot records are to be laid over (`ColdIndex`, `PublishedSnapshot`)."""

    @property
    def seam(self) -> Seam:
        """The first offset that it does not contain, by partition."""

    @property
    def source(self) -> str:
        """The log that it is fed from."""

    @property
    def tombstones_from_ms(self) -> int:
        """From when on (ms) a missing tombstone may leave a row in it."""

    @property
    def definition(self) -> LiveTable:
        """The definition that goes with it."""

    @property
    def definition_json(self) -> str:
        """The same, as it is compared."""


class HotContent(Protocol):
    """What a hot tier holds (`serving.hot.tier.HotTier`, `serving.hot.view.HotView`)."""

    @property
    def topics(self) -> Collection[str]:
        """Those that it is read from."""

    @property
    def start(self) -> Seam:
        """The first offset, by partition."""

    @property
    def source(self) -> str:
        """The log that the records come from, named as a snapshot names its own."""

    @property
    def complete_from_ms(self) -> int:
        """From when on (ms) no tombstone is missing."""

    @property
    def definition_json(self) -> str:
        """The definition that the records were decoded by."""


def incompatibility(snapshot: Snapshot, hot: HotContent) -> str | None:
    """Why these hot records can't be laid over this snapshot; None when they can.

    A definition may differ in its topics: those of the snapshot's count, and have to be read.
    """
    topics = snapshot.definition.topics
    problem = _other_records(snapshot, hot, topics)
    if problem is not None:
        return problem
    lacking = [topic for topic in topics if topic not in hot.topics]
    if lacking:  # safety: hot-topics
        return f"the hot tier is not read from {lacking[0]}, which feeds the snapshot"
    return None


def cannot_go_on(snapshot: Snapshot, tier: HotContent) -> str | None:
    """Why a tier can't be read on under this snapshot; None when it can.

    Topics that came are taken up, those that left let go. ``tier`` has every topic of which it may still
    hold records: of one made again under such a name, a record could not be told from those before.
    """
    held = [topic for topic in snapshot.definition.topics if topic in tier.topics]
    return _other_records(snapshot, tier, held)


def _other_records(snapshot: Snapshot, hot: HotContent, topics: Sequence[str]) -> str | None:
    """Why the hot records of these topics are not those that follow the snapshot."""
    if _is_other_definition(snapshot.definition_json, hot.definition_json):  # safety: hot-definition
        return (
            "the hot tier holds records of another definition than that of the snapshot, version "
            f"{snapshot.definition.version}; it is being read again"
        )
    if _is_other_log(snapshot.source, hot.source, topics):  # safety: hot-source
        return "the hot tier holds records of another log than the snapshot's; it is being read again"
    if hot.complete_from_ms > snapshot.tombstones_from_ms:  # safety: hot-complete
        return "the hot tier may lack deletes that compaction dropped; it is being read again"
    start = hot.start.only(topics)
    if not snapshot.seam.at_least(start):  # safety: hot-reach
        return f"the hot tier begins at {start}, beyond the snapshot's {snapshot.seam}"
    return None


def _is_other_definition(one: str, other: str) -> bool:
    return one != other and apart_from_topics(one) != apart_from_topics(other)


def _is_other_log(one: str, other: str, topics: Sequence[str]) -> bool:
    return one != other and fed_by(one).is_other(fed_by(other), topics)
