"""A table schema that isn't the definition's: what counts, field by field, and what is harmless."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, LongType, NestedField, StringType, StructType

from thermocline.iceberg.foreign_schema import schema_differences
from thermocline.rules.definition import LiveTable

TABLE = LiveTable.build(
    name="t",
    identifier="app.t",
    topics=["t"],
    key=["k"],
    columns={"k": "int", "v": "string", "inner": "struct<a: int, b: string>"},
)
OURS = TABLE.iceberg_schema()


def changed(number: int, **to: object) -> Schema:
    """The table's schema with one top-level field made another; None drops it."""
    fields = []
    for field in OURS.fields:
        if field.field_id != number:
            fields.append(field)
        elif to:
            fields.append(field.model_copy(update=to))
    return Schema(*fields)


def with_inner(*inside: tuple[str, IcebergType]) -> Schema:
    old = OURS.find_field("inner").field_type
    assert isinstance(old, StructType)
    ids = [field.field_id for field in old.fields]
    fields = [
        NestedField(number, name, kind, required=False)
        for number, (name, kind) in zip(ids, inside, strict=True)
    ]
    return changed(3, field_type=StructType(*fields))


@pytest.mark.parametrize(
    ("schema", "differences"),
    [
        (changed(2), ("v (string) was dropped",)),
        (changed(2, name="w"), ("v was renamed to w",)),
        (changed(1, field_type=LongType()), ("k became long, from int",)),
        (
            changed(2, field_id=99),
            ("v (string) was dropped and added again under another field id",),
        ),
        (
            with_inner(("a", LongType()), ("c", StringType())),
            ("inner.a became long, from int", "inner.b was renamed to inner.c"),
        ),
    ],
)
def test_a_column_that_is_not_the_definitions_is_told(schema: Schema, differences: tuple[str, ...]) -> None:
    assert schema_differences(TABLE, schema) == differences


def test_more_columns_another_order_and_words_about_columns_are_harmless() -> None:
    more = NestedField(50, "more", StringType(), required=False)
    assert schema_differences(TABLE, Schema(more, *reversed(OURS.fields))) == ()
    assert schema_differences(TABLE, changed(2, doc="a comment")) == ()
