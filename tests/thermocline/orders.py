"""A table that is altered and compared, and what may be wanted of it instead."""

from __future__ import annotations

from typing import Any

from thermocline.rules.definition import LiveTable

COLUMNS = {"id": "int", "slot": "string", "count": "int", "price": "decimal(6,2)", "at": "timestamptz"}
SETTINGS: dict[str, Any] = {
    "name": "orders",
    "identifier": "app.orders",
    "topics": ["orders"],
    "key": ["id", "slot"],
    "entity": ["id"],
    "columns": COLUMNS,
}
ORDERS = LiveTable.build(**SETTINGS)


def wanted(**changes: Any) -> LiveTable:
    return LiveTable.build(**SETTINGS | changes)
