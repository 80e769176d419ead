"""How topics are set: what is named, what it means, and the command that sets it otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from thermocline.doctor.finding import Finding, Outcome
from thermocline.doctor.kafka import missing_rights
from thermocline.doctor.topics import (
    Topic,
    compaction_lag_of,
    letter_bytes_of,
    message_bytes_of,
    retention_of_topic,
    tombstones_of,
)
from thermocline.kafka.rights import READING, WRITING
from thermocline.settings import KafkaSettings, PassThrough

KAFKA = KafkaSettings(bootstrap_servers="b:1")
WEEK = {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}
COMPACTED = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "86400000",
    "min.compaction.lag.ms": "86400000",
}


def topic(entries: dict[str, str], **facts: Any) -> Topic:
    return Topic(KAFKA, "t", entries, ("profiles",), 60_000, **facts)


def only(found: Iterator[Finding]) -> Finding:
    (finding,) = found
    return finding


@pytest.mark.parametrize(
    ("entries", "outcome", "fix"),
    [
        ({}, Outcome.WELL, ""),
        ({"retention.ms": "60000"}, Outcome.PROBLEM, "retention.ms=604800000"),
        ({"retention.ms": "7200000"}, Outcome.WARNING, "retention.ms=604800000"),
        ({"retention.ms": "-1"}, Outcome.WELL, ""),
    ],
)
def test_a_retention_is_judged_by_how_long_ingest_may_stand_still(
    entries: dict[str, str], outcome: Outcome, fix: str
) -> None:
    found = only(retention_of_topic(topic({**WEEK, **entries})))
    assert (found.outcome, found.fix.rpartition("--add-config ")[2]) == (outcome, fix)


def test_a_retention_shorter_than_ten_commits_is_a_problem_however_long_it_is() -> None:
    rare = Topic(KAFKA, "t", {**WEEK, "retention.ms": "172800000"}, ("profiles",), 86_400_000)
    found = only(retention_of_topic(rare))
    assert found.outcome is Outcome.PROBLEM
    assert found.fix.endswith("retention.ms=864000000")


def test_the_whole_finding_of_a_minute() -> None:
    found = only(retention_of_topic(topic({**WEEK, "retention.ms": "60000"})))
    assert found.looked_at == "retention.ms is 60,000 (1 minute)"
    assert "offsets-gone" in found.means
    assert found.fix == (
        "kafka-configs.sh --bootstrap-server b:1 --alter --entity-type topics --entity-name t "
        "--add-config retention.ms=604800000"
    )
    assert found.exit_code == 1


def test_a_bound_in_bytes_is_a_warning_beside_the_time() -> None:
    by_time, by_size = retention_of_topic(topic({**WEEK, "retention.bytes": "1000"}))
    assert (by_time.outcome, by_size.outcome) == (Outcome.WELL, Outcome.WARNING)
    assert by_size.fix.endswith("retention.bytes=-1")


@pytest.mark.parametrize(
    ("look", "entries", "facts", "outcome", "fix"),
    [
        (tombstones_of, WEEK, {}, Outcome.WELL, ""),
        (tombstones_of, COMPACTED, {}, Outcome.WELL, ""),
        (
            tombstones_of,
            {**COMPACTED, "delete.retention.ms": "100"},
            {},
            Outcome.PROBLEM,
            "delete.retention.ms=604800000",
        ),
        (
            tombstones_of,
            {**COMPACTED, "delete.retention.ms": "3600000"},
            {},
            Outcome.WARNING,
            "delete.retention.ms=604800000",
        ),
        (tombstones_of, {**COMPACTED, "delete.retention.ms": "100"}, {"is_keyed": False}, Outcome.WELL, ""),
        (
            tombstones_of,
            COMPACTED,
            {"needs_every_record": True},
            Outcome.PROBLEM,
            "cleanup.policy=delete,retention.ms=604800000",
        ),
        (compaction_lag_of, WEEK, {}, Outcome.WELL, ""),
        (compaction_lag_of, COMPACTED, {}, Outcome.WELL, ""),
        (
            compaction_lag_of,
            {**COMPACTED, "min.compaction.lag.ms": "0"},
            {},
            Outcome.WARNING,
            "min.compaction.lag.ms=86400000",
        ),
        (message_bytes_of, WEEK, {"record_bytes_max": 1_048_588}, Outcome.WELL, ""),
        (
            message_bytes_of,
            {"max.message.bytes": "2000"},
            {"record_bytes_max": 1000},
            Outcome.WARNING,
            "max.message.bytes=1000",
        ),
    ],
)
def test_compaction_and_sizes(
    look: Callable[[Topic], Iterator[Finding]],
    entries: dict[str, str],
    facts: dict[str, Any],
    outcome: Outcome,
    fix: str,
) -> None:
    found = only(look(topic(entries, **facts)))
    assert (found.outcome, found.fix.rpartition("--add-config ")[2]) == (outcome, fix)


def test_a_dead_letter_topic_takes_what_its_table_reads() -> None:
    assert letter_bytes_of(KAFKA, "dead", {"max.message.bytes": "500"}, "t", 500).outcome is Outcome.WELL
    found = letter_bytes_of(KAFKA, "dead", {"max.message.bytes": "499"}, "t", 500)
    assert found.outcome is Outcome.PROBLEM
    assert found.fix.endswith("--entity-name dead --add-config max.message.bytes=16884")
    assert letter_bytes_of(KAFKA, "dead", None, "t", 500).outcome is Outcome.NOT_LOOKED_AT


def test_rights_that_are_missing_are_granted_by_the_command() -> None:
    kafka = KafkaSettings(
        bootstrap_servers="b:1",
        client=PassThrough({"sasl.username": "ada", "security.protocol": "SASL_PLAINTEXT"}),
    )
    found = missing_rights(kafka, "t", READING, frozenset({"DESCRIBE"}))
    assert found is not None
    assert found.outcome is Outcome.PROBLEM
    assert found.fix.splitlines()[-1] == (
        "kafka-acls.sh --bootstrap-server b:1 --add --allow-principal User:ada --operation Read "
        "--operation DescribeConfigs --topic t"
    )
    assert missing_rights(kafka, "t", READING, frozenset(READING)) is None
    assert missing_rights(kafka, "t", READING, None) is None, "an old broker does not say"


def test_a_topic_whose_configuration_is_hidden_is_a_warning_only() -> None:
    found = missing_rights(KAFKA, "t", READING, frozenset({"READ", "DESCRIBE"}))
    assert found is not None
    assert (found.outcome, found.exit_code) == (Outcome.WARNING, 0)
    letters = missing_rights(KAFKA, "dead", WRITING, frozenset({"DESCRIBE"}))
    assert letters is not None
    assert (letters.outcome, letters.means) == (Outcome.PROBLEM, "ingest stops at the first dead letter")
