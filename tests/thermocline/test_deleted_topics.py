"""Deleted topics: what shows that a table has all of one, and what does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from thermocline.errors import TopicDeleted
from thermocline.rules.deleted_topics import Known, check_drained
from thermocline.rules.seam import Seam

HOUR_MS = 3_600_000
DRAINED_MS = 1_700_000_000_000
AT: Any = cast(
    Any,
    SimpleNamespace(seam=Seam({("a", 0): 10, ("a", 1): 3, ("b", 0): 7}), drained_ms=DRAINED_MS),
)


def check(gone: list[str], known: Seam | Known, age_ms: int) -> None:
    seen = Known(known) if isinstance(known, Seam) else known
    check_drained("t", gone, AT, seen, DRAINED_MS + age_ms, HOUR_MS)


def unread(gone: list[str], known: Seam | Known, age_ms: int) -> tuple[str, ...]:
    with pytest.raises(TopicDeleted) as stopped:
        check(gone, known, age_ms)
    return stopped.value.unread


def test_a_topic_that_was_read_up_to_the_ends_last_seen_is_drained_however_long_ago() -> None:
    check(["a"], Seam({("a", 0): 10, ("a", 1): 3}), 1000 * HOUR_MS)


def test_records_up_to_the_ends_last_seen_that_the_table_lacks_are_named() -> None:
    ends = Seam({("a", 0): 12, ("a", 1): 3, ("a", 2): 1})
    assert unread(["a"], ends, 0) == ("a/0@10-12", "a/2@0-1")


def test_without_ends_a_table_that_was_drained_a_short_while_ago_has_all_of_a_topic() -> None:
    check(["a", "b"], Seam(), HOUR_MS)
    assert unread(["a", "b"], Seam(), HOUR_MS + 1) == ("a/0@10-?", "a/1@3-?", "b/0@7-?")


def test_what_was_seen_of_a_topic_says_nothing_of_another() -> None:
    assert unread(["a", "b"], Seam({("a", 0): 10, ("a", 1): 3}), 2 * HOUR_MS) == ("b/0@7-?",)


def test_what_is_known_to_have_been_there_shows_what_the_table_lacks_and_not_that_it_has_all() -> None:
    assert unread(["b"], Known(least=Seam({("b", 0): 8})), 0) == ("b/0@7-8",)
    check(["b"], Known(least=Seam({("b", 0): 7})), HOUR_MS)
    assert unread(["b"], Known(least=Seam({("b", 0): 7})), HOUR_MS + 1) == ("b/0@7-?",)


def test_the_time_says_nothing_of_a_topic_with_records_behind_an_open_transaction() -> None:
    check(["a"], Known(held=["b"]), 0)
    assert unread(["b"], Known(held=["b"]), 0) == ("b/0@7-?",)
    check(["b"], Known(ends=Seam({("b", 0): 7}), held=["b"]), 0)


def test_a_time_in_the_future_counts_as_long_as_it_is_near() -> None:
    check(["b"], Seam(), -HOUR_MS)
    assert unread(["b"], Seam(), -HOUR_MS - 1) == ("b/0@7-?",)


def test_the_error_names_what_was_read_and_the_command_that_goes_on() -> None:
    error = TopicDeleted(table="t", unread=("a/0@10-1200", "b/0@7-?"), drained_at="2023-11-14T22:13:20Z")
    assert "a/0 (read up to 10), it went up to 1,200; " in error.what.replace(", b/0", "; b/0")
    assert "b/0 (read up to 7), nobody knows how far it went" in error.what
    assert error.topics == ("a", "b")
    assert error.resume == "thermocline ingest accept-gap t --fact deleted:a/0@10 --fact deleted:b/0@7"
