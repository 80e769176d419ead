"""A check that each snapshot begins where the one before it ended, and accounts for what it read. Pure.

Only summaries and the table's properties are asked. What was accepted on purpose (a gap, another log, a
snapshot to go back to) is on record in the summary of the snapshot that accepted it, and is compared with it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from thermocline.errors import first_line
from thermocline.iceberg.catalog import (
    BATCH_PROPERTY,
    EPOCH_PROPERTY,
    SEAM_PROPERTY,
    SUMMARY_ACCEPTED,
    SUMMARY_BATCH,
    SUMMARY_EPOCH,
    SUMMARY_TOPICS_LEFT,
)
from thermocline.rules.seam import Seam
from thermocline.verify.finding import Finding

if TYPE_CHECKING:
    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.iceberg.lineage import Link
    from thermocline.rules.definition import LiveTable

READ: Final = "read"
# Partitions that a sentence names one by one; the others are counted.
_PLACES_MAX: Final = 5


def seam_findings(
    links: Sequence[Link],
    properties: Mapping[str, str | None],
    definition: LiveTable,
    rewrites: Collection[int] = (),
) -> Iterator[Finding]:
    """What does not fit among the summaries of main's snapshots, oldest first, and the table's properties.

    ``rewrites`` are snapshots of others that are known to have kept every row.
    """
    yield from _unread(links, rewrites)
    ours = [link for link in links if link.state is not None]
    for link in ours:
        yield from _sums(link)
    if ours and ours[0].is_first:
        yield from _beginning(ours[0])
    for before, link in _neighbours(links):
        yield from _joined(before, link)
    yield from _repeated(ours)
    if ours and ours[-1] is links[-1]:
        yield from _copies(ours[-1], properties)
        yield from _definition(ours[-1], definition)


def name_of(link: Link) -> str:
    """A snapshot as a sentence names it."""
    return f"snapshot {link.snapshot_id}"


def _unread(links: Sequence[Link], rewrites: Collection[int]) -> Iterator[Finding]:
    for link in links:
        if link.is_foreign:
            if link.snapshot_id not in rewrites:
                facts = "carries no seam: another writer made it"
                yield Finding("snapshot-foreign", f"{name_of(link)} {facts}")
        elif link.problem:
            yield Finding("summary-unreadable", f"{name_of(link)}: {link.problem}")


def _neighbours(links: Sequence[Link]) -> Iterator[tuple[Link, Link]]:
    """Snapshots of ours, each with the one that it goes on from, where both can be read."""
    for before, link in pairwise(link for link in links if not link.is_foreign):
        if before.state is not None and link.state is not None:
            yield before, link


def _sums(link: Link) -> Iterator[Finding]:
    """Each record once: in the batch, and over the table's life."""
    state = _state(link)
    for what, counts in (("its batch", state.counts), ("the table's life", state.totals)):
        rest = sum(counts.values()) - counts.get(READ, 0)
        if rest != counts.get(READ, 0) or any(count < 0 for count in counts.values()):
            spelled = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
            yield Finding("accounting-open", f"{name_of(link)} does not add up over {what}: {spelled}")
    if state.watermark_ms < -1 or state.drained_ms < 0:
        what = f"watermark {state.watermark_ms} ms, drained {state.drained_ms} ms"
        yield Finding("summary-unreadable", f"{name_of(link)} has times that are none: {what}")


def _beginning(link: Link) -> Iterator[Finding]:
    state = _state(link)
    if any(state.counts.values()) or any(state.totals.values()):
        yield Finding("accounting-open", f"{name_of(link)} is the table's first and counts records")


def _joined(before: Link, link: Link) -> Iterator[Finding]:
    """What a snapshot says, against the one of ours before it."""
    earlier, state = _state(before), _state(link)
    pair = f"{name_of(link)} after {name_of(before)}"
    if state.epoch < earlier.epoch:
        yield Finding("epoch-back", f"{pair}: the epoch went back from {earlier.epoch} to {state.epoch}")
    if state.definition_version < earlier.definition_version:
        versions = f"from {earlier.definition_version} to {state.definition_version}"
        yield Finding("definition-version-differs", f"{pair}: the definition went back {versions}")
    yield from _totals(pair, earlier, state)
    if link.is_accepted:
        yield from _accepted(pair, link, earlier, state)
    elif link.is_beside_the_log:
        if state.seam != earlier.seam:
            what = "a replay" if link.is_replay else "rows of another source"
            yield Finding("seam-not-joined", f"{pair}: {what} moved the seam, {_moved(earlier, state)}")
    else:
        left = _left(link, earlier, state)
        yield from _moved_on(pair, earlier, state, left)
        yield from _same_log(pair, earlier, state, left)


def _left(link: Link, earlier: SnapshotState, state: SnapshotState) -> frozenset[str]:
    """The topics that a snapshot says that it left out; the summary names the first of them only."""
    if SUMMARY_TOPICS_LEFT not in link.summary:  # safety: verify-topics-left
        return frozenset()
    return frozenset(topic for topic in earlier.topic_ids if topic not in state.topic_ids)


def _totals(pair: str, earlier: SnapshotState, state: SnapshotState) -> Iterator[Finding]:
    for name in sorted({*earlier.totals, *state.totals, *state.counts}):
        expected = earlier.totals.get(name, 0) + state.counts.get(name, 0)
        if state.totals.get(name, 0) != expected:  # safety: verify-totals
            facts = f"{state.totals.get(name, 0)} {name} in all, where {expected} would follow"
            yield Finding("accounting-open", f"{pair}: {facts}")


def _moved_on(
    pair: str, earlier: SnapshotState, state: SnapshotState, left: Collection[str]
) -> Iterator[Finding]:
    """The seam only moves on, over as many offsets as records were read, or more.

    More where the log has holes: markers of transactions, aborted records, compaction. A partition that is
    new is read from its first offset, or from where an alteration says, which is somewhere before its seam.
    """
    back = [
        f"{topic}/{partition} from {offset} to {_spelled(state.seam, (topic, partition))}"
        for topic, partition, offset in earlier.seam.without(left).items()
        if (topic, partition) not in state.seam or state.seam[topic, partition] < offset
    ]
    if back:  # safety: verify-seam-back
        yield Finding("seam-not-joined", f"{pair}: the seam went back, {_some(back)}")
        return
    offsets = sum(end - earlier.seam.get((topic, p)) for topic, p, end in state.seam.items())
    read = state.counts.get(READ, 0)
    if read > offsets:
        facts = f"{read} records were read over {offsets} offsets"
        yield Finding("seam-not-joined", f"{pair}: {facts}, {_moved(earlier, state) or 'the seam stood'}")


def _same_log(
    pair: str, earlier: SnapshotState, state: SnapshotState, left: Collection[str]
) -> Iterator[Finding]:
    if state.cluster_id != earlier.cluster_id:
        facts = f"cluster {earlier.cluster_id} became {state.cluster_id}"
        yield Finding("seam-not-joined", f"{pair}: {facts}, and nobody accepted it")
    for topic, topic_id in earlier.topic_ids.items():
        if topic not in left and state.topic_ids.get(topic) != topic_id:
            facts = f"topic {topic} {topic_id} became {state.topic_ids.get(topic, 'none of the table')}"
            yield Finding("seam-not-joined", f"{pair}: {facts}, and nobody accepted it")


def _accepted(pair: str, link: Link, earlier: SnapshotState, state: SnapshotState) -> Iterator[Finding]:
    """What was accepted says which partitions moved, from where to where; nothing is read with it."""
    if state.counts.get(READ, 0):
        yield Finding("seam-not-joined", f"{pair}: it accepts a loss and reads {state.counts[READ]} records")
    try:
        note = json.loads(link.summary[SUMMARY_ACCEPTED])
        said = Seam.from_dict(note["seam_before"]), Seam.from_dict(note["seam_after"])
    except (ValueError, TypeError, KeyError) as error:
        yield Finding(
            "summary-unreadable", f"{name_of(link)}: what it accepts can't be read: {first_line(error)}"
        )
        return
    if _changed(earlier.seam, state.seam) != said:  # safety: verify-accepted
        facts = f"{_moved(earlier, state) or 'nothing'}, and {said[0]} to {said[1]} was accepted"
        yield Finding("seam-not-joined", f"{pair}: what moved is {facts}")


def _changed(before: Seam, after: Seam) -> tuple[Seam, Seam]:
    """The partitions that moved, new and gone ones included, as they were and as they are."""
    ours, theirs = ({(topic, p): end for topic, p, end in seam.items()} for seam in (before, after))
    moved = {place for place in ours.keys() | theirs.keys() if ours.get(place) != theirs.get(place)}
    was, is_now = (Seam({place: seam[place] for place in moved if place in seam}) for seam in (before, after))
    return was, is_now


def _repeated(ours: Sequence[Link]) -> Iterator[Finding]:
    seen: dict[str, Link] = {}
    for link in ours:
        earlier = seen.setdefault(_state(link).batch_id, link)
        if earlier is not link:
            batch = f"{name_of(earlier)} and {name_of(link)} both carry batch {_state(link).batch_id}"
            yield Finding("batch-repeated", batch)


def _copies(link: Link, properties: Mapping[str, str | None]) -> Iterator[Finding]:
    """The table's properties, against the current snapshot. A batch id is missing in tables of old."""
    state = _state(link)
    seam, batch, epoch = (properties.get(name) for name in (SEAM_PROPERTY, BATCH_PROPERTY, EPOCH_PROPERTY))
    differ = []
    if not _is_of(state.seam, seam):
        differ.append(
            f"{SEAM_PROPERTY} is {seam or 'missing'}, and the snapshot's seam {state.seam.to_json()}"
        )
    if batch is not None and batch != state.batch_id:
        differ.append(f"{BATCH_PROPERTY} is {batch}, and {SUMMARY_BATCH} {state.batch_id}")
    if epoch != str(state.epoch):
        differ.append(f"{EPOCH_PROPERTY} is {epoch or 'missing'}, and {SUMMARY_EPOCH} {state.epoch}")
    if differ:
        facts = "; ".join(differ)
        yield Finding("seam-copy-differs", f"{name_of(link)} is not what the table last committed: {facts}")


def _is_of(seam: Seam, text: str | None) -> bool:
    try:
        return text is not None and Seam.from_json(text) == seam
    except ValueError:
        return False


def _definition(link: Link, definition: LiveTable) -> Iterator[Finding]:
    version = _state(link).definition_version
    if version != definition.version:
        facts = f"version {version} of the definition, and the table has version {definition.version}"
        yield Finding("definition-version-differs", f"{name_of(link)} was made with {facts}")


def _state(link: Link) -> SnapshotState:
    assert link.state is not None
    return link.state


def _moved(earlier: SnapshotState, state: SnapshotState) -> str:
    was, is_now = _changed(earlier.seam, state.seam)
    places = dict.fromkeys((topic, p) for seam in (was, is_now) for topic, p, _ in seam.items())
    return _some(
        [f"{t}/{p} from {_spelled(was, (t, p))} to {_spelled(is_now, (t, p))}" for t, p in sorted(places)]
    )


def _spelled(seam: Seam, place: tuple[str, int]) -> str:
    return str(seam[place]) if place in seam else "nowhere"


def _some(places: Sequence[str]) -> str:
    left = len(places) - _PLACES_MAX
    return ", ".join(places[:_PLACES_MAX]) + (f" and {left} more" if left > 0 else "")
