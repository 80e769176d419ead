"""Names of routed tables, and a route's directory: no two values share a table, and none is lost."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.routes.directory import Beginning, Directory
from thermocline.rules.routes.names import NAME_CHARACTERS_MAX, is_denied, name_of, problem_of_value
from thermocline.rules.seam import Seam

IDS = {"events": "id"}
START = Beginning(Seam({("events", 0): 7}), PartitionTimes({("events", 0): 1_700}), 1_800, "c", IDS)
LATER = Beginning(Seam({("events", 0): 9}), PartitionTimes({("events", 0): 1_900}), 2_000, "c", IDS)


@pytest.mark.parametrize("value", ["order", "order_line", "2024", "a" * NAME_CHARACTERS_MAX, "_"])
def test_a_plain_name_is_kept(value: str) -> None:
    assert name_of(value) == value


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("Order", "order_6be090825c"),
        ("order.line", "order_line_"),
        ("größe", "gr__e_"),
        ("order_quarantine", "order_quarantine_"),
        ("live", "live_"),
        ("order_live_by_key", "order_live_by_key_"),
        ("order_cold", "order_cold_"),
        ("order_at_7", "order_at_7_"),
        ("directory", "directory_"),
        ("order_0123456789", "order_0123456789_"),
        ("a" * 41, "a" * 29 + "_"),
        ("\ud800", "__"),
    ],
)
def test_any_other_value_gets_a_name_with_its_hash(value: str, name: str) -> None:
    found = name_of(value)
    assert found.startswith(name)
    assert re.fullmatch(r".*_[0-9a-f]{10}", found)
    assert len(found) <= NAME_CHARACTERS_MAX


@given(st.sets(st.text(alphabet="aAbB_-.é0123456789", min_size=1, max_size=60), max_size=30))
def test_no_two_values_share_a_name_and_each_is_a_tables(values: set[str]) -> None:
    names = {name_of(value) for value in values}
    assert len(names) == len(values)
    assert all(re.fullmatch(r"[a-z0-9_]{1,40}", name) for name in names)


@given(st.text(min_size=1, max_size=60))
def test_the_name_of_a_value_is_not_that_of_another_one(value: str) -> None:
    """A value that is spelled like a name that was made gets another name."""
    made = name_of(value)
    assert name_of(made) == made if made == value else name_of(made) != made


def test_values_are_denied_as_they_are_and_by_the_name_that_is_made_of_them() -> None:
    assert is_denied("debug_x", ("debug_*",))
    assert is_denied("Debug.x", ("debug_*",))
    assert is_denied("Order", ("Order",))
    assert not is_denied("order", ("Order", "debug_*"))


def test_a_value_that_is_empty_or_endless_has_no_table() -> None:
    assert problem_of_value("") == "its value is empty"
    assert problem_of_value("x" * 1_025) == "its value has more than 1,024 bytes"
    assert problem_of_value("x" * 1_024) == ""


def test_new_values_are_known_in_their_order_as_far_as_there_is_room() -> None:
    known = Directory().with_table("b").without_table("c", "why", START)
    assert known.admitted(["d", "b", "a", "c", "e"], tables_max=4) == ("a", "d")
    assert known.admitted(["d"], tables_max=2) == ()


def test_values_that_have_a_table_already_are_known_before_others() -> None:
    known = Directory().with_table("b")
    assert known.admitted(["a", "d"], tables_max=3, before=["z", "b", "c"]) == ("c", "z")
    assert known.admitted(["a", "c"], tables_max=4, before=["c"]) == ("c", "a")
    assert known.admitted([], tables_max=4, before=["c"]) == ("c",)


def test_a_batch_beyond_the_limit_refuses_all_but_what_is_known_or_chosen() -> None:
    known = Directory().with_table("b").without_table("c", "why", START).with_table("debug_old")
    admission = known.admission(("debug*",), tables_max=4, chosen=("a",))
    found = {value: admission.of(value) for value in ("a", "b", "c", "d", "debug", "debug_old", "")}
    assert found == {
        "a": "routed",
        "b": "routed",
        "c": "routed",
        "d": "beyond",
        "debug": "denied",
        "debug_old": "denied",
        "": "unusable",
    }
    assert admission.reason("d", "beyond") == ("its value has no table: the route has 4, which is tables_max")
    assert admission.reason("debug", "denied") == ""


def test_while_there_is_room_another_value_is_new() -> None:
    assert Directory().with_table("b").admission((), tables_max=2).of("d") == "new"


def test_a_value_that_failed_begins_where_it_first_came_however_often_it_fails() -> None:
    known = Directory().without_table("a", "first", START).without_table("a", "second", LATER)
    assert known.failed["a"].reason == "second"
    assert known.failed["a"].since == START
    assert known.with_table("a") == Directory({"a": "a"})


def test_a_value_that_waits_knows_the_topics_that_came_since_and_its_own_of_then() -> None:
    known = Directory().without_table("a", "why", START).with_table("b")
    assert known.knowing(LATER) is known
    with_more = replace(
        LATER,
        seam=Seam({("events", 0): 30, ("log", 0): 2, ("log", 1): 0}),
        drained_ms=1_700,
        cluster_id="d",
        topic_ids={"events": "recreated", "log": "x"},
    )
    assert known.knowing(with_more).failed["a"].since == Beginning(
        Seam({("events", 0): 7, ("log", 0): 2, ("log", 1): 0}),
        START.partition_times,
        1_700,
        "c",
        {"events": "id", "log": "x"},
    )


def test_a_place_of_an_earlier_release_which_says_no_topics_is_one_of_those_that_there_are() -> None:
    of_then = Beginning(START.seam, START.partition_times, START.drained_ms)
    stored = of_then.to_dict()
    del stored["cluster"], stored["topics"]
    assert Beginning.from_dict(stored) == of_then
    assert of_then.knowing(LATER) == START


@given(st.dictionaries(st.text(min_size=1, max_size=30), st.booleans(), max_size=300))
def test_a_directory_is_read_back_as_it_was_written(values: dict[str, bool]) -> None:
    known = Directory()
    for value, has_table in values.items():
        known = known.with_table(value) if has_table else known.without_table(value, "why", START)
    text = known.to_json()
    assert Directory.from_json(text) == known
    assert text.isascii()


def test_nothing_is_an_empty_directory_and_what_nobody_wrote_is_none() -> None:
    assert Directory.from_json(None) == Directory()
    for text in ("[]", '{"names": 1}', '{"failed": {"a": {}}}', "nonsense"):
        with pytest.raises(ValueError, match=r"."):
            Directory.from_json(text)
