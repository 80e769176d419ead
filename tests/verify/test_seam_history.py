"""Random histories of summaries, as owners and commands write them: nothing is found until one is changed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from tests.ingest.one_bucket import DEFINITION
from thermocline.iceberg.catalog import (
    BATCH_PROPERTY,
    EPOCH_PROPERTY,
    SEAM_PROPERTY,
    SUMMARY_ACCEPTED,
    SUMMARY_EPOCH,
    SUMMARY_RECORDS_TOTAL,
    SUMMARY_REPLAYED,
    SUMMARY_SEAM,
    SUMMARY_TOPICS_LEFT,
)
from thermocline.iceberg.lineage import Link, link_of
from thermocline.ingest.batch.accounting import Accounting
from thermocline.ingest.commit.change import TableChange, summary_fields
from thermocline.ingest.table.accepted import Accepted
from thermocline.rules.seam import Seam
from thermocline.verify.finding import Finding
from thermocline.verify.seam_history import seam_findings

T = "profiles"
HISTORIES = 300


@dataclass
class Story:
    """Snapshots of one table, each written by what a random choice does."""

    chance: random.Random
    seam: Seam = field(default_factory=lambda: Seam.of({T: {0: 0, 1: 5}}))
    epoch: int = 0
    topic_id: str = "id"
    summaries: list[dict[str, str]] = field(default_factory=list)

    def write(self, **changes: Any) -> None:
        totals = {}
        if self.summaries:
            prefix = SUMMARY_RECORDS_TOTAL
            before = self.summaries[-1]
            totals = {n.removeprefix(prefix): int(v) for n, v in before.items() if n.startswith(prefix)}
        accounting = changes.pop("accounting", Accounting())
        change = TableChange(self.seam, "cluster", {T: self.topic_id}, 3, 4, accounting=accounting, **changes)
        self.summaries.append(summary_fields(change, self.epoch, DEFINITION.version, totals))

    def go_on(self) -> None:
        {0: self.batch, 1: self.take_over, 2: self.accept, 3: self.rebase, 4: self.replay, 5: self.grow}[
            self.chance.choice([0, 0, 0, 0, 1, 2, 3, 4, 5])
        ]()

    def batch(self) -> None:
        """Some offsets, of which some are no records."""
        by = {(topic, p): self.chance.randrange(9) for topic, p, _ in self.seam.items()}
        self.seam = self.seam.advanced({place: self.seam[place] + more for place, more in by.items()})
        self.write(accounting=self.some(sum(by.values()) - self.chance.randrange(2)))

    def some(self, read: int) -> Accounting:
        counts = [0] * 5
        for _ in range(max(read, 0)):
            counts[self.chance.randrange(5)] += 1
        return Accounting(max(read, 0), *counts)

    def take_over(self) -> None:
        self.epoch += 1
        self.write()

    def accept(self) -> None:
        self.move(self.seam.advanced({(T, 0): self.seam[T, 0] + 5}))

    def rebase(self) -> None:
        self.topic_id = f"id{len(self.summaries)}"
        self.move(Seam.of({T: {0: self.chance.randrange(3), 1: 0}}))

    def move(self, to: Seam) -> None:
        note = Accepted.of_move("code", (), "now", self.seam, to)
        self.seam = to
        self.write(summary={SUMMARY_ACCEPTED: note.entry()})

    def replay(self) -> None:
        count = self.chance.randrange(5)
        accounting = Accounting(read=count, applied=count)
        self.write(accounting=accounting, summary={SUMMARY_REPLAYED: "{}"})

    def grow(self) -> None:
        self.seam = Seam({**{(t, p): o for t, p, o in self.seam.items()}, (T, len(self.seam)): 3})
        self.write(accounting=Accounting(read=3, applied=3))

    def links(self) -> list[Link]:
        return [
            link_of(
                Snapshot.model_validate(
                    {
                        "snapshot-id": number,
                        "parent-snapshot-id": number - 1 or None,
                        "sequence-number": number,
                        "timestamp-ms": number,
                        "manifest-list": "",
                        "summary": Summary(Operation.OVERWRITE, **summary),
                    }
                )
            )
            for number, summary in enumerate(self.summaries, start=1)
        ]

    def findings(self, links: list[Link] | None = None) -> list[Finding]:
        copies = {
            SEAM_PROPERTY: self.seam.to_json(),
            EPOCH_PROPERTY: str(self.epoch),
            BATCH_PROPERTY: self.links()[-1].summary["thermocline.batch-id"],
        }
        return list(seam_findings(self.links() if links is None else links, copies, DEFINITION))


def told(chance: random.Random) -> Story:
    story = Story(chance)
    story.write()
    for _ in range(chance.randrange(1, 15)):
        story.go_on()
    return story


def stories() -> list[Story]:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    return [told(random.Random(f"{seed}/{number}")) for number in range(HISTORIES)]


def test_nothing_is_found_in_what_owners_and_commands_write_from_wherever_it_is_held() -> None:
    for story in stories():
        assert story.findings() == []
        held = story.chance.randrange(len(story.summaries))
        assert story.findings(story.links()[held:]) == []


def test_a_snapshot_that_is_left_out_of_the_middle_is_missed() -> None:
    """Goal: its records are in the totals of the ones after it, whatever else it did."""
    for story in stories():
        counts = [link.state.counts["read"] if link.state else 0 for link in story.links()]
        candidates = [number for number, count in enumerate(counts[:-1]) if number and count]
        if candidates:
            links = story.links()
            del links[story.chance.choice(candidates)]
            assert "accounting-open" in {one.code for one in story.findings(links)}


def test_every_count_that_somebody_changes_is_found() -> None:
    for story in stories():
        summary = story.chance.choice(story.summaries)
        name = story.chance.choice([one for one in summary if "records-" in one])
        summary[name] = str(int(summary[name]) + story.chance.choice([-1, 1]))
        assert "accounting-open" in {one.code for one in story.findings()}


def test_every_seam_that_somebody_sets_back_is_found() -> None:
    """Goal: but in the first snapshot that is held; more offsets than records follow that one then."""
    for story in stories():
        seams = [Seam.from_json(summary[SUMMARY_SEAM]) for summary in story.summaries]
        at = story.chance.randrange(1, len(seams))
        place = (T, story.chance.randrange(2))
        if before := seams[at - 1][place]:
            is_as_before = seams[at][place] == before - 1  # where it was set back on the record
            changed = {(topic, p): offset for topic, p, offset in seams[at].items()} | {place: before - 1}
            story.summaries[at][SUMMARY_SEAM] = Seam(changed).to_json()
            codes = {one.code for one in story.findings()}
            assert bool(codes & {"seam-not-joined", "seam-copy-differs"}) is not is_as_before


def test_an_epoch_that_goes_back_is_found() -> None:
    story = told(random.Random(4))
    story.take_over()
    story.take_over()
    story.batch()
    story.summaries[-2][SUMMARY_EPOCH] = "0"
    assert {one.code for one in story.findings()} == {"epoch-back"}


@pytest.mark.parametrize("is_said", [True, False])
def test_a_topic_that_is_gone_is_found_unless_its_snapshot_says_that_it_left(is_said: bool) -> None:
    story = told(random.Random(5))
    other = Seam.of({"daily": {0: 9}})
    ids = {T: story.topic_id, "daily": "id of daily"}
    both = TableChange(story.seam.merged_max(other), "cluster", ids, 3, 4)
    without = TableChange(
        story.seam,
        "cluster",
        {T: story.topic_id},
        3,
        4,
        summary={SUMMARY_TOPICS_LEFT: "daily"} if is_said else {},
    )
    totals = {
        name.removeprefix(SUMMARY_RECORDS_TOTAL): int(count)
        for name, count in story.summaries[-1].items()
        if name.startswith(SUMMARY_RECORDS_TOTAL)
    }
    for change in (both, without):
        story.summaries.append(summary_fields(change, story.epoch, DEFINITION.version, totals))
    assert [one.code for one in story.findings()] == ([] if is_said else ["seam-not-joined"] * 2)
