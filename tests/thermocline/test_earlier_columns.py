"""What the columns were before they were renamed or dropped, as the table notes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from thermocline.errors import AlterationRefused
from thermocline.iceberg import earlier_columns
from thermocline.iceberg.earlier_columns import (
    at_version,
    dropped_paths,
    up_to_version,
    with_earlier_columns,
)
from thermocline.iceberg.reading import definition_at
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.definition import LiveTable


def build(**columns: Any) -> LiveTable:
    return LiveTable.build(
        name="t", identifier="a.t", topics=["t"], key=["id"], columns={"id": "int", **columns}
    )


FIRST = build(a={"type": "int", "path": "x.a"}, b="struct<c: string, d: int>", t="string")
SECOND = plan_alteration(FIRST, build(b="struct<c: string>", t="string"), 9, drop=["a", "b.d"]).definition
# Nothing is noted when a column is added: schemas tell.
THIRD = plan_alteration(SECOND, build(b="struct<c: string>", t="string", n="date"), 20).definition
FOURTH = plan_alteration(
    THIRD, build(b="struct<c: string>", u={"type": "string", "renamed_from": "t"}, n="date"), 21
).definition
PROPERTIES = with_earlier_columns({}, FIRST)
PROPERTIES |= with_earlier_columns(PROPERTIES, THIRD)


@pytest.mark.parametrize(("version", "then"), [(1, FIRST), (2, THIRD), (3, THIRD), (4, FOURTH), (5, FOURTH)])
def test_each_version_has_the_columns_of_the_alteration_that_ended_it(version: int, then: LiveTable) -> None:
    assert [one.version for one in (FIRST, SECOND, THIRD, FOURTH)] == [1, 2, 3, 4]
    found = at_version(PROPERTIES, FOURTH, version)
    assert found.columns == then.columns
    assert found.key == ("id",)


def test_all_versions_up_to_one_have_theirs() -> None:
    found = [one.columns for one in up_to_version(PROPERTIES, FOURTH, 4)]
    assert found == [FIRST.columns, THIRD.columns, FOURTH.columns]


def test_a_snapshot_is_read_by_the_columns_of_its_version_and_the_fields_of_its_schema() -> None:
    """The second version lacks the column that the third one added, as its schema does."""
    schemas = [
        then.iceberg_schema().model_copy(update={"schema_id": then.version})
        for then in (FIRST, SECOND, THIRD, FOURTH)
    ]
    table: Any = SimpleNamespace(properties=PROPERTIES, metadata=SimpleNamespace(schemas=schemas))
    for then in (FIRST, SECOND, THIRD, FOURTH):
        snapshot, state = (
            SimpleNamespace(schema_id=then.version),
            SimpleNamespace(definition_version=then.version),
        )
        link: Any = SimpleNamespace(snapshot=snapshot, state=state)
        assert definition_at(table, link, FOURTH).columns == then.columns


def test_what_was_dropped_is_known_by_where_records_have_it() -> None:
    """Not what was renamed, nor what came under the name of a dropped column."""
    assert dropped_paths(with_earlier_columns({}, FIRST), SECOND) == {("x", "a"), ("b", "d")}
    assert dropped_paths(PROPERTIES, FOURTH) == {("x", "a"), ("b", "d")}
    u = {"type": "string", "path": "t"}
    again = build(a="string", b="struct<c: string, d: int>", u=u, n="date")
    fifth = plan_alteration(FOURTH, again, 22).definition
    assert dropped_paths(PROPERTIES, fifth) == {("x", "a"), ("b", "d")}, "the columns are others"
    properties = with_earlier_columns(PROPERTIES, fifth)
    sixth = plan_alteration(fifth, build(u=u, n="date"), 30, drop=["a", "b"]).definition
    assert dropped_paths(properties, sixth) == {("x", "a"), ("a",), ("b",)}
    assert dropped_paths({}, FIRST) == frozenset()


def test_notes_that_would_be_too_large_refuse_the_alteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_columns, "BYTES_MAX", 100)
    with pytest.raises(AlterationRefused, match="more than 100 bytes"):
        with_earlier_columns({}, FIRST)
