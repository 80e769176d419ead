"""The record of what was accepted. That the commands resume is seen in tests/behaviour/test_stops.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.small_ingest import NAME, Ingest, settings_of
from thermocline.errors import (
    LogReplaced,
    NotConfirmed,
    OffsetsGone,
    TombstonesGone,
)
from thermocline.iceberg.catalog import (
    ACCEPTED_BYTES_MAX,
    ACCEPTED_ENTRIES_MAX,
    ACCEPTED_PROPERTY,
    load_table,
    open_catalog,
)
from thermocline.ingest.table.accepted import (
    GAPS,
    Accepted,
    check_facts,
    topics_in_question,
    with_entry,
)
from thermocline.ingest.table.resume import rebase_onto
from thermocline.process.clock import SystemClock
from thermocline.rules.seam import Seam

GONE = OffsetsGone(table="t", gaps=("a/0@5-9", "a/1@2-3"))


def test_the_list_keeps_the_newest_and_stays_small() -> None:
    entries = "[]"
    for number in range(ACCEPTED_ENTRIES_MAX + 5):
        entries = with_entry(entries, json.dumps({"number": number}))
    assert [one["number"] for one in json.loads(entries)] == list(range(5, ACCEPTED_ENTRIES_MAX + 5))
    large = json.dumps({"facts": "x" * (ACCEPTED_BYTES_MAX // 3)})
    for _ in range(5):
        entries = with_entry(entries, large)
    assert len(entries) <= ACCEPTED_BYTES_MAX
    assert len(json.loads(with_entry("[]", json.dumps({"facts": "x" * ACCEPTED_BYTES_MAX})))) == 1


def test_the_very_facts_pass_in_any_order() -> None:
    check_facts("t", GONE, GAPS, ["a/1@2-3", "a/0@5-9"])


@pytest.mark.parametrize(
    "facts", [[], ["a/0@5-9"], ["a/0@5-9", "a/1@2-4"], ["a/0@5-9", "a/1@2-3", "a/2@0-1"], ["a/0@5-9"] * 2]
)
def test_fewer_more_or_other_facts_are_refused_with_the_right_command(facts: list[str]) -> None:
    with pytest.raises(NotConfirmed) as differ:
        check_facts("t", GONE, GAPS, facts)
    assert differ.value.command == "thermocline ingest accept-gap t --fact a/0@5-9 --fact a/1@2-3"
    assert (differ.value.exit_code, differ.value.next) == (2, differ.value.command)


def test_the_right_facts_to_the_wrong_command_are_refused() -> None:
    stop = LogReplaced.of_cluster("t", "x", "y")
    with pytest.raises(NotConfirmed, match="cluster=y") as differ:
        check_facts("t", stop, GAPS, ["cluster=y"])
    assert "ingest rebase t --fact cluster=y --to earliest" in differ.value.next


def test_the_command_that_is_printed_reads_from_where_the_user_said() -> None:
    stop = LogReplaced.of_cluster("t", "x", "y")
    for to, said in (("latest", "latest"), ("2026-01-01 00:00+00:00", "'2026-01-01 00:00+00:00'")):
        with pytest.raises(NotConfirmed) as differ:
            check_facts("t", stop, (LogReplaced,), ["cluster=x"], to)
        assert differ.value.command == f"thermocline ingest rebase t --fact cluster=y --to {said}"


@pytest.mark.jvm
def test_what_others_write_after_the_facts_were_seen_is_not_given_up(tmp_path: Path, jvm: Any) -> None:
    """Method: the facts are right when the command looks; then others commit before it takes the table."""
    settings = settings_of(tmp_path, "sqlite:///catalog.db")
    ingest = Ingest(settings, jvm, seed=1)
    ours = ingest.owned.state.snapshot_id
    ingest.owned.release()

    def append() -> int:
        ingest.java_table().newAppend().commit()
        return int(ingest.java_table().currentSnapshot().snapshotId())

    class Late(SystemClock):
        looks = 0

        def now_ms(self) -> int:
            self.looks += 1
            if self.looks == 2:
                append()
            return super().now_ms()

    facts = [f"current={append()}"]
    with pytest.raises(NotConfirmed) as differ:
        rebase_onto(settings, NAME, ours, facts, Late())
    newest = ingest.java_table().currentSnapshot().snapshotId()
    resumed = f"thermocline ingest rebase {NAME} --fact current={newest} --onto {ours}"
    assert differ.value.command == resumed
    done = rebase_onto(settings, NAME, ours, [f"current={newest}"], SystemClock())
    assert done is not None
    assert len(done.given_up) == 2
    (note,) = json.loads(
        load_table(open_catalog(settings.catalog), NAME, "app.profiles").properties[ACCEPTED_PROPERTY]
    )
    assert note == done.to_dict()


def test_a_rebase_concerns_the_topics_that_are_in_question_and_no_others() -> None:
    topics = ("a", "b", "c/d")
    assert topics_in_question(LogReplaced.of_cluster("t", "x", "y"), topics) == topics
    replaced = LogReplaced.of_topics("t", {"b": ("x", "y")})
    assert topics_in_question(replaced, topics) == ("b",)
    assert topics_in_question(LogReplaced.of_end("t", ("a/0@1-2", "a/4@7-9")), topics) == ("a",)
    late = TombstonesGone(table="t", topics=("b",), since=("T",), kept_ms=(1,))
    assert topics_in_question(late, topics) == ("b",)
    assert topics_in_question(LogReplaced.of_partitions("t", ("b/0@1",)), topics) == ("b",)


def test_the_record_holds_the_partitions_that_moved() -> None:
    before = Seam.of({"a": {0: 1, 1: 2, 2: 0}, "b": {0: 3}})
    after = Seam.of({"a": {0: 1, 1: 5, 3: 0}, "b": {0: 3}})
    note = Accepted.of_move("code", (), "now", before, after)
    assert note.seam_before == {"a": {"1": 2, "2": 0}}
    assert note.seam_after == {"a": {"1": 5, "3": 0}}
