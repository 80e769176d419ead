"""Topics by pattern: which entries are patterns, which topics are found, and when definitions differ."""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.errors import AlterationRefused, ConfigInvalid
from thermocline.ingest.commit.rotation import with_topics
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.definition import LiveTable
from thermocline.rules.definition_diff import differences_of
from thermocline.rules.topic_patterns import (
    added_to,
    entries_of,
    finds,
    found_by_pattern,
    named_in,
    problems_of_entries,
    split_entries,
)

DAILY = r"log\.\d{8}"
"""As in the file: ``topics = ["base", "log\\.\\d{8}"]``."""


def live_table(topics: list[str], patterns: list[str], **options: Any) -> LiveTable:
    return LiveTable.build(
        name="t",
        identifier="app.t",
        topics=topics,
        topic_patterns=patterns,
        key=["id"],
        columns={"id": "int", "v": "string"},
        **options,
    )


def test_what_kafka_takes_as_a_name_is_a_name_and_all_else_a_pattern() -> None:
    entries = ["base", "log.20240101", DAILY, "a_b-c.D", "logs?", "a" * 249, "b" * 250]
    names = ("base", "log.20240101", "a_b-c.D", "a" * 249)
    assert split_entries(entries) == (names, (DAILY, "logs?", "b" * 250))


@pytest.mark.parametrize(
    ("topic", "is_found"),
    [
        ("log.20240101", True),
        ("log.2024010", False),
        ("log.202401011", False),
        ("xlog.20240101", False),
        ("logx20240101", False),
        ("log.20240101\n", False),
    ],
)
def test_a_pattern_finds_topics_whose_whole_name_it_matches(topic: str, is_found: bool) -> None:
    assert finds([DAILY], topic) is is_found


def test_no_pattern_finds_a_topic_of_kafkas_own() -> None:
    assert not finds(["_+[a-z]+.*"], "__consumer_offsets")
    assert finds(["_+[a-z]+.*"], "_schemas")


@pytest.mark.parametrize(
    ("entries", "others", "problem"),
    [
        (["log["], (), "neither a topic name nor a regular expression: unterminated character set"),
        ([""], (), "neither a topic name nor a regular expression: it is empty"),
        ([".*"], (), "matches __consumer_offsets, a topic of Kafka's own"),
        (["__transaction_st.*"], (), "matches __transaction_state, a topic of Kafka's own"),
        ([r"log\..*"], ("log.dead",), "matches log.dead, into which Thermocline writes"),
        (["log.1", r"log\..*"], (), "matches log.1, which is named, too"),
        ([r"log\..*", r"log\..*"], (), "must name each pattern once"),
    ],
)
def test_what_is_wrong_with_an_entry_is_said(
    entries: list[str], others: tuple[str, ...], problem: str
) -> None:
    assert any(problem in one for one in problems_of_entries(entries, others))


def test_nothing_is_wrong_with_names_and_a_pattern_that_meet_nowhere() -> None:
    assert not [*problems_of_entries(["base", DAILY, r"app\.(a|b)"], ["base.dead", "audit"])]


def test_the_topics_that_came_are_those_listed_that_the_table_does_not_have_by_name() -> None:
    table = live_table(["base", "log.20240102"], [DAILY])
    listed = {"log.20240103", "log.20240101", "log.20240102", "base", "other", "log.x"}
    assert added_to(table, listed) == ("log.20240101", "log.20240103")


def test_the_entries_of_a_table_are_its_named_topics_and_its_patterns() -> None:
    table = live_table(["log.20240102", "base", "log.20240101"], [DAILY])
    assert found_by_pattern(table) == ("log.20240102", "log.20240101")
    assert named_in(table) == ("base",)
    assert entries_of(table) == ("base", DAILY)


def test_a_table_may_have_no_topic_while_it_has_a_pattern() -> None:
    assert live_table([], [DAILY]).topics == ()
    with pytest.raises(ConfigInvalid, match="at least one topic"):
        live_table([], [])


def test_found_topics_are_no_difference_from_the_file() -> None:
    table = live_table(["base", "log.20240101"], [DAILY], version=2)
    assert table.differences(live_table(["base"], [DAILY])) == ()


@pytest.mark.parametrize(
    ("topics", "patterns"),
    [(["base"], []), (["base", "more"], [DAILY]), ([], [DAILY]), (["base"], [DAILY, "more.?"])],
)
def test_other_names_or_patterns_are_a_difference(topics: list[str], patterns: list[str]) -> None:
    (difference,) = live_table(["base", "log.20240101"], [DAILY]).differences(live_table(topics, patterns))
    assert difference.startswith('topics is ["base", "log')


def test_an_alteration_leaves_out_no_topic_that_a_pattern_found() -> None:
    current = live_table(["base", "log.20240101"], [DAILY], version=4)
    planned = plan_alteration(current, live_table(["base", "more", "log.20240102"], [DAILY]))
    assert planned.topics == ("more", "log.20240102")
    assert planned.definition.topics == ("base", "more", "log.20240101", "log.20240102")
    assert planned.definition.topic_patterns == (DAILY,)
    assert planned.definition.version == 5
    assert planned.changes == ("topic more feeds the table, too", "topic log.20240102 feeds the table, too")
    assert not plan_alteration(current, live_table(["base"], [DAILY])).changes


def test_a_topic_that_no_pattern_finds_any_more_must_be_named() -> None:
    current = live_table(["log.20240101"], [DAILY])
    with pytest.raises(AlterationRefused, match=r"the topic log\.20240101 can't be left out"):
        plan_alteration(current, live_table(["base"], [r"app\.\d+"]))
    planned = plan_alteration(current, live_table(["log.20240101"], []))
    assert planned.changes == (f"topics are found by nothing, from {DAILY}",)
    assert planned.definition.topics == ("log.20240101",)


def test_a_named_topic_can_become_one_that_a_pattern_finds() -> None:
    planned = plan_alteration(live_table(["log.20240101"], []), live_table([], [DAILY]))
    assert planned.definition.topics == ("log.20240101",)
    assert planned.changes == (f"topics are found by {DAILY}, from nothing",)


def test_what_a_table_carries_is_read_back_with_its_patterns() -> None:
    table = live_table(["base", "log.20240101"], [DAILY], version=2)
    assert LiveTable.from_json(table.to_json(), "t") == table


def test_the_file_names_all_topics_that_it_finds_but_those_that_ingest_is_to_find() -> None:
    """Goal: these are read from their first record on, whatever `start` says of the others."""
    listed = {"log.20240101", "log.20240102", "app.1", "other"}
    wanted = live_table(["base"], [DAILY, r"app\.\d+"])
    assert with_topics(wanted, listed).topics == ("base", "app.1", "log.20240101", "log.20240102")
    assert with_topics(wanted, listed, [DAILY]).topics == ("base", "app.1")


def test_topics_differ_from_the_file_by_names_and_patterns_alone() -> None:
    current = live_table(["base", "log.20240101"], [DAILY])
    assert differences_of(current, live_table(["base"], [DAILY])) == ()
    (found,) = differences_of(current, live_table(["base", "more"], [DAILY, "extra.?"]))
    assert (found.of, found.setting, found.value) == ("topics", "topics", ["base", DAILY])
    assert found.changes == (
        "topic more feeds the table, too",
        f"topics are found by {DAILY}, extra.?, from {DAILY}",
    )
    (left,) = differences_of(current, live_table(["more"], [DAILY]))
    assert left.refusals == ("the topic base can't be left out: the table holds rows of it, and its seam",)
