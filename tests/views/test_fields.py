"""Every kind of column has a type in Trino, and an expression that gives it."""

from __future__ import annotations

import pytest

from tests.thermocline.poison import POISONED
from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.definition import Column
from thermocline.views.fields import token, value

UNREAD = (Kind.JSON, Kind.STRUCT, Kind.LIST, Kind.MAP)
"""By no expression: a table that has such a column has no view of its log."""


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in UNREAD])
def test_every_kind_of_column_is_read(kind: Kind) -> None:
    column = Column("it", ColumnType.parse("decimal(10,2)" if kind is Kind.DECIMAL else str(kind)), 1)
    text = value(column, "_c0", "_message")
    assert "_c0" in text
    assert column.type.trino


def test_types_are_those_of_the_iceberg_table() -> None:
    types = {column.name: column.type.trino for column in POISONED.columns}
    assert types["price"] == "decimal(10, 2)"
    assert types["at"] == types["at_ms"] == "timestamp(6) with time zone"
    assert (types["id"], types["raw"], types["text"]) == ("uuid", "varbinary", "varchar")


def test_a_token_is_null_where_the_field_is_null_or_missing() -> None:
    column = Column("a.b", ColumnType(Kind.INT), 1)
    assert token(column, "_j") == """nullif(json_format(json_extract(_j, '$["a.b"]')), 'null')"""


def test_only_a_number_with_a_fraction_has_the_text_asked_again() -> None:
    """It costs a walk through the document, so that integers and strings go without."""
    column = Column("price", ColumnType(Kind.DECIMAL, 10, 2), 1)
    text = value(column, "_c0", "_message")
    assert text.index("starts_with(_c0, '\"')") < text.index("strpos(_c0, '.') > 0") < text.index("_message")
