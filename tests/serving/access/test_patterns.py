"""Grants by patterns of tables: each gives what it says, and nothing besides."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.errors import ConfigInvalid
from thermocline.serving.access.clients import read_clients
from thermocline.serving.read.caller import Action, Caller, Grant, granted_by

NAMES = st.text(alphabet="ab_", min_size=1, max_size=4)
GRANTED = st.one_of(NAMES, NAMES.map(lambda name: f"{name}*"), st.just("*"))


def caller_of(tmp_path: Path, text: str) -> Caller:
    file = tmp_path / "clients.toml"
    file.write_text(text)
    return Caller("a", read_clients(file).clients["a"].grants({}))


def test_a_tables_own_grant_counts_or_else_the_longest_pattern(tmp_path: Path) -> None:
    caller = caller_of(
        tmp_path,
        """
        [clients.a.tables]
        "*" = { verbs = ["admin"] }
        "events_*" = { verbs = ["lookup", "extract"], columns = ["value"] }
        "events_order*" = { verbs = ["lookup"] }
        "events_order" = { verbs = ["jobs"] }
        """,
    )
    verbs = {
        name: {str(action) for action in Action if caller.may(action, name)}
        for name in (
            "events_order",
            "events_orders",
            "events_order_line",
            "events_line",
            "events",
            "Events_x",
        )
    }
    assert verbs == {
        "events_order": {"jobs"},
        "events_orders": {"lookup"},
        "events_order_line": {"lookup"},
        "events_line": {"lookup", "extract"},
        "events": {"admin"},
        "Events_x": {"admin"},
    }
    assert caller.grant("events_line").part.columns == ("value",)


def test_without_a_grant_for_all_a_pattern_leaves_all_others_unknown(tmp_path: Path) -> None:
    caller = caller_of(tmp_path, '[clients.a.tables."events_*"]\nverbs = ["lookup", "admin"]')
    assert caller.knows("events_")
    for name in ("events", "event", "other", "EVENTS_x", "xevents_x", "*", ""):
        assert not caller.knows(name), name


def test_a_grant_that_a_token_leaves_empty_is_not_replaced_by_a_wider_one() -> None:
    caller = Caller("a", {"events_x": Grant(frozenset()), "events_*": Grant(frozenset(Action))})
    assert not caller.knows("events_x")
    assert caller.knows("events_y")


@given(st.sets(GRANTED, max_size=6), NAMES)
def test_nothing_is_granted_by_a_pattern_that_the_name_does_not_begin_with(
    granted: set[str], table: str
) -> None:
    fitting = [one for one in granted if one[-1] == "*" and table[: len(one) - 1] == one[:-1]]
    expected = table if table in granted else max(fitting, key=len, default=None)
    assert granted_by(granted, table) == expected


@pytest.mark.parametrize("name", ["ev*nts", "*_x", "**", "events_**", "-x*", "a b*", "x" * 65 + "*"])
def test_what_is_no_beginning_of_names_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigInvalid, match="is no pattern: it is the beginning of names, followed by"):
        caller_of(tmp_path, f'[clients.a.tables."{name}"]\nverbs = ["lookup"]')
