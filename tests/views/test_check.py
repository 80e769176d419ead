"""What `views check` finds, and the command that mends it; what brokers say of retention."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.views.test_lifetime import APPENDED, BY_PRODUCER, COMPACTED, FOR_EVER, KEPT, facts
from thermocline.kafka.facts import TopicConfig, TopicRetention, retention_of
from thermocline.settings import CatalogSettings, KafkaSettings, Settings, TableSettings
from thermocline.views.check import check_topics, check_trino

SETTINGS = Settings(
    kafka=KafkaSettings(bootstrap_servers="b:1"),
    catalog=CatalogSettings(uri="sqlite:///c.db", warehouse="w"),
    tables={"t": TableSettings(identifier="app.t", topics=("t",), key=("id",), columns={"id": "int"})},
)
GOOD = replace(FOR_EVER, compaction_lag_ms=86_400_000)


def fixes(config: TopicConfig, retention: TopicRetention, **state: Any) -> list[str]:
    found = list(check_topics(SETTINGS, facts(config, retention, **state)))
    return [one.fix.rpartition("--add-config ")[2] for one in found if not one.is_good]


def test_a_topic_as_it_should_be_needs_nothing() -> None:
    assert fixes(replace(COMPACTED, is_log_append_time=True), GOOD) == []
    assert fixes(APPENDED, KEPT) == []


@pytest.mark.parametrize(
    ("config", "retention", "fix"),
    [
        (BY_PRODUCER, KEPT, "message.timestamp.type=LogAppendTime"),
        (BY_PRODUCER, replace(KEPT, backdated_ms_max=0), "message.timestamp.type=LogAppendTime"),
        (APPENDED, replace(KEPT, kept_ms=60_000), "retention.ms=604800000"),
        (APPENDED, replace(KEPT, is_limited_by_size=True), "retention.bytes=-1"),
        (
            replace(COMPACTED, is_log_append_time=True),
            replace(GOOD, compaction_lag_ms=0),
            "min.compaction.lag.ms=86400000",
        ),
    ],
)
def test_what_shortens_the_life_of_views_has_a_command(
    config: TopicConfig, retention: TopicRetention, fix: str
) -> None:
    assert fixes(config, retention) == [fix]


def test_the_command_is_whole() -> None:
    (finding,) = [one for one in check_topics(SETTINGS, facts(BY_PRODUCER, KEPT)) if one.fix]
    assert finding.fix == (
        "kafka-configs.sh --bootstrap-server b:1 --alter --entity-type topics --entity-name t "
        "--add-config message.timestamp.type=LogAppendTime"
    )


@pytest.mark.parametrize(
    ("format_version", "version", "is_said"),
    [(3, "476", True), (3, "479-e.1", True), (3, "480", False), (3, "unknown", False), (2, "476", False)],
)
def test_a_table_that_this_trino_cannot_read_is_said(
    format_version: int, version: str, is_said: bool
) -> None:
    answers = {"SELECT version()": [(version,)], "SHOW CATALOGS": [("lake",)]}
    trino: Any = SimpleNamespace(url="u", rows=answers.__getitem__)
    found = [one for one in check_trino(SETTINGS, "t", format_version, trino) if "PUFFIN" in one.found]
    assert bool(found) == is_said
    assert all("format_version = 2" in one.fix for one in found)


def test_it_says_what_producers_times_cost() -> None:
    def words(retention: TopicRetention, **options: Any) -> str:
        found = check_topics(SETTINGS, facts(BY_PRODUCER, retention, **options))
        return next(one.found for one in found if "timestamp.type" in one.subject)

    assert words(replace(KEPT, backdated_ms_max=0)) == "CreateTime: the live view has literal ends"
    assert words(FOR_EVER) == "CreateTime: the live view has literal ends"
    assert words(FOR_EVER, shows_transactions=True) == "CreateTime"
    assert "views end soon after ingest does" in words(KEPT)
    assert "message.timestamp.before.max.ms" in words(KEPT, shows_transactions=True)


def test_transactions_that_the_definition_does_not_tell_of_are_said() -> None:
    (finding,) = [one for one in check_topics(SETTINGS, facts(shows_transactions=True)) if one.fix]
    assert finding.subject == "transactions"
    assert "transactional = true in [tables.t]" in finding.fix
    assert "thermocline table alter t" in finding.fix


@pytest.mark.parametrize(
    ("entries", "bound_ms"),
    [
        ({"message.timestamp.before.max.ms": "5"}, 5),
        ({"message.timestamp.before.max.ms": "0"}, 0),
        ({"message.timestamp.before.max.ms": str((1 << 63) - 1)}, None),
        # Brokers of 3.6 to 3.9 have both, of which the older one counts where the newer one is not set.
        (
            {
                "message.timestamp.before.max.ms": str((1 << 63) - 1),
                "message.timestamp.difference.max.ms": "7",
            },
            7,
        ),
        ({"message.timestamp.before.max.ms": "9", "message.timestamp.difference.max.ms": "7"}, 9),
        ({}, None),
    ],
)
def test_how_old_a_record_may_be_when_it_comes(entries: dict[str, str | None], bound_ms: int | None) -> None:
    assert retention_of(entries).backdated_ms_max == bound_ms


@pytest.mark.parametrize(
    ("entries", "retention"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "5", "retention.bytes": "-1"}, (5, False, None)),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "9"}, (None, True, None)),
        (
            {
                "cleanup.policy": "compact",
                "retention.ms": "5",
                "retention.bytes": "9",
                "min.compaction.lag.ms": "7",
            },
            (None, False, 7),
        ),
        ({"cleanup.policy": "compact,delete", "retention.ms": "5", "retention.bytes": "9"}, (5, True, 0)),
        ({}, (604_800_000, True, 0)),
    ],
)
def test_what_a_broker_leaves_out_is_taken_for_the_least(
    entries: dict[str, str | None], retention: tuple[int | None, bool, int | None]
) -> None:
    found = retention_of(entries)
    assert replace(found, bytes_max=None) == TopicRetention(*retention)
    assert found.bytes_max == (9 if found.is_limited_by_size and entries else None)
