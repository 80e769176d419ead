"""Rows against the log, over random histories: no false alarm, whatever was lost, and no damage unseen."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from tests.tier import quick_or_full
from tests.verify.story import LARGE, TOPIC, Record, Story
from thermocline.kafka.facts import RecordChunk
from thermocline.verify.log_decode import LogDecoder
from thermocline.verify.report import Report
from thermocline.verify.row_judge import Reason
from thermocline.verify.staging import LOG, MEMORY_BYTES_MIN, STORED, Staging
from thermocline.verify.table_check import TableCheck
from thermocline.verify.unconfirmed import UnconfirmedFindings, offsets_of

HISTORIES = quick_or_full(30, 120)
DAMAGES_MAX = quick_or_full(4, 20)


def told(seed: int, *, is_lossless: bool = False, is_partial: bool = False) -> Story:
    """A history of some batches; lossless ones keep the log, all snapshots, and each key in its partition.

    Partial ones have no topic that is compacted, and no replays.
    """
    chance = random.Random(seed)
    story = Story(
        chance,
        partitions=chance.choice((1, 2, 3)),
        suppresses=chance.random() < 0.3,
        moves=not is_lossless and chance.random() < 0.4,
        is_partial=is_partial,
    )
    altered_at = chance.randrange(6)
    for batch in range(6):
        story.produce(chance.randrange(30), users=chance.choice((4, 12)))
        if batch == altered_at:
            story.alter()
        story.commit()
        if not is_lossless and chance.random() < 0.15:
            story.grow()
        if chance.random() < 0.3 and not is_partial:
            story.replay()
    story.produce(chance.randrange(10), users=8)
    if not is_lossless:
        for lose in (story.cut, story.expire) if is_partial else (story.cut, story.compact, story.expire):
            if chance.random() < 0.4:
                lose()
    return story


def verified(story: Story) -> Report:
    """The table of a history against its log."""
    reading = story.reading()
    if reading.lacks_beginning:
        least: dict[tuple[str, int], int] = {}
        for row in story.rows.values():
            least[row.place] = min(row.offset, least.get(row.place, row.offset))
        reading = reading.with_evidence(least)
    firsts = {
        place: first
        for place in reading.incarnations
        if (first := reading.first_of(place, story.starts.get(place, 0))) is not None
    }
    decoder = LogDecoder(reading, [])
    report = Report("scores")
    compacted = {TOPIC} if story.compacted else set()
    unconfirmed = UnconfirmedFindings(compacted, is_by_value=False, report=report)
    check = TableCheck(reading, firsts, compacted, set(), report, unconfirmed)
    with closing(Staging(None, reading.definition, MEMORY_BYTES_MIN)) as staging:
        for chunk in story.chunks():
            if (after := beginning_at(chunk, firsts.get((chunk.topic, chunk.partition), 0))).offsets:
                staging.add(LOG, decoder.decode(after))
        staging.add(STORED, story.table())
        check.check(staging)
    unconfirmed.settle(lambda keys: offsets_of(reading.definition, iter(story.chunks()), keys))
    return report


def beginning_at(chunk: RecordChunk, first: int) -> RecordChunk:
    at = bisect_left(chunk.offsets, first)
    lists = (chunk.keys[at:], chunk.values[at:], chunk.offsets[at:], chunk.timestamps_ms[at:])
    return RecordChunk(chunk.topic, chunk.partition, *lists)


def test_a_table_that_ingest_made_is_never_called_wrong() -> None:
    """Whatever was cut, compacted, expired, altered, replayed, suppressed, or moved to other partitions."""
    reasons: Counter[Reason] = Counter()
    agreed = suppressed = 0
    for seed in range(HISTORIES):
        report = verified(told(seed))
        assert report.agrees, (seed, report.findings)
        reasons += report.unjudged
        agreed += report.agreed
        suppressed += report.suppressed
    assert agreed > HISTORIES
    assert suppressed > 0
    assert {Reason.OLDER, Reason.COMPACTED, Reason.MOVED} <= set(reasons), "nothing was lost in any history"


def test_a_table_with_partial_updates_is_never_called_wrong() -> None:
    """Whatever was cut, expired, altered, suppressed, or moved to other partitions."""
    reasons: Counter[Reason] = Counter()
    for seed in range(HISTORIES):
        report = verified(told(seed, is_partial=True))
        assert report.agrees, (seed, report.findings)
        reasons += report.unjudged
    assert reasons[Reason.PARTIAL] > 0


@pytest.mark.parametrize("is_partial", [False, True])
def test_where_nothing_is_lost_all_rows_are_judged(is_partial: bool) -> None:
    for seed in range(HISTORIES):
        story = told(seed, is_lossless=True, is_partial=is_partial)
        report = verified(story)
        assert report.agrees, (seed, report.findings)
        judged = report.agreed + report.suppressed + report.unjudged.pop(Reason.REPLAYED, 0)
        assert judged == len(story.rows), seed
        assert not report.unjudged, seed


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("a row is lost", "row-missing"),
        ("a deleted row is back", "row-extra"),
        ("a row that nobody wrote", "row-extra"),
        ("an old value is back", "row-stale"),
        ("another value", "row-differs"),
        ("a row from beyond the seam", "row-beyond-seam"),
        ("a row is there twice", "key-live-twice"),
    ],
)
@pytest.mark.parametrize("is_partial", [False, True])
def test_each_damage_is_named(damage: str, code: str, is_partial: bool) -> None:
    done = 0
    for seed in range(HISTORIES):
        story = told(seed, is_lossless=True, is_partial=is_partial)
        if (user := DAMAGES[damage](story)) is None or (is_partial and may_have_been_replayed(story, user)):
            continue
        report = verified(story)
        assert report.counts[code] == 1, (seed, user, report.counts, report.findings)
        (finding,) = report.findings
        assert finding.key == {"user": user}
        done += 1
        if done == DAMAGES_MAX:
            return
    assert done > DAMAGES_MAX // 2


def lose(story: Story) -> str | None:
    return story.rows.pop(user).user if (user := a_row(story)) else None


def resurrect(story: Story) -> str | None:
    for record in read_by(story):
        last = [one for one in read_by(story) if one.user == record.user][-1]
        if record.score is not None and last.score is None and record.user not in story.rows:
            story.rows[record.user] = record
            return record.user
    return None


def invent(story: Story) -> str | None:
    place, end = next(((topic, p), end) for topic, p, end in story.seams[-1].items())
    if not end:
        return None
    story.rows["nobody"] = Record(place, end - 1, 0, "nobody", 1)
    return "nobody"


def set_back(story: Story) -> str | None:
    for user, row in story.rows.items():
        for record in read_by(story):
            is_older = record.user == user and record.place == row.place and record.offset < row.offset
            if is_older and record.score not in (None, row.score):
                story.rows[user] = record
                return user
    return None


def change(story: Story) -> str | None:
    if (user := a_row(story)) is not None:
        story.rows[user] = replace(story.rows[user], score=-1)
    return user


def run_ahead(story: Story) -> str | None:
    for user, row in story.rows.items():
        story.rows[user] = replace(row, offset=story.seams[-1].get(row.place) + 5)
        return user
    return None


def repeat(story: Story) -> str | None:
    story.repeated = next(iter(story.rows), None)
    return story.repeated


def a_row(story: Story) -> str | None:
    """The user of a row that is its key's last record, as it was read."""
    last = {record.user: record for record in read_by(story)}
    places = {user: (record.place, record.offset) for user, record in last.items()}
    return next((u for u, row in story.rows.items() if places.get(u) == (row.place, row.offset)), None)


def may_have_been_replayed(story: Story, user: str) -> bool:
    """Whether a record was bad at first: what a partial one was laid over is not judged then."""
    return any(one.user == user and one.score == LARGE for some in story.log.values() for one in some)


def read_by(story: Story) -> list[Record]:
    """The records that were good when the table read them, of one partition a key."""
    return [record for records in story.log.values() for record in records if story.was_good(record)]


DAMAGES: dict[str, Callable[[Story], str | None]] = {
    "a row is lost": lose,
    "a deleted row is back": resurrect,
    "a row that nobody wrote": invent,
    "an old value is back": set_back,
    "another value": change,
    "a row from beyond the seam": run_ahead,
    "a row is there twice": repeat,
}
