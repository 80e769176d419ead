"""Rights in Trino: rules for its file-based access control.

The views are DEFINER views, so analysts need no right on what they read: neither on the tables below nor
on Kafka. What no rule gives is denied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from thermocline.views.topics import SCHEMA, table_name

OURS: Final = "(live|live_by_key|cold|at_.+)"
"""What follows a table's name and an underscore in the names of its views."""

_SYSTEM_SCHEMAS: Final = "jdbc|metadata"
"""What drivers ask for the lists that people choose from; each sees there what it may read."""


@dataclass(frozen=True, slots=True)
class Names:
    """What things are called in Trino.

    Attributes:
        lake: The Iceberg catalog.
        kafka: The Kafka catalog.
        live: The catalog of the server's live tables; None where there is none.
        publisher: The user that publishes the views; they run with its rights.
        admin: A user that may do everything, if there shall be one.
    """

    lake: str = "lake"
    kafka: str = "kafka"
    publisher: str = "thermocline"
    admin: str | None = None
    live: str | None = None


def rules(names: Names, identifiers: Iterable[str], topics: Iterable[str]) -> str:
    """Gives the file of rules for tables (`namespace.table`) and the topics that feed them."""
    tables = [_schema_and_table(identifier) for identifier in identifiers]
    document = {
        "catalogs": _catalogs(names),
        "schemas": [*_of_admin(names, owner=True), {"owner": False}],
        "tables": [
            *_of_admin(
                names, privileges=["SELECT", "INSERT", "DELETE", "UPDATE", "OWNERSHIP", "GRANT_SELECT"]
            ),
            *(rule for schema, table in tables for rule in _table_rules(names, schema, table)),
            *(rule for schema, table in tables for rule in _view_rules(names, schema, table)),
            {
                "user": re.escape(names.publisher),  # safety: access-kafka
                "catalog": names.kafka,
                "schema": SCHEMA,
                "table": _any_of(map(table_name, topics)),
                "privileges": ["SELECT", "GRANT_SELECT"],
            },
            *_live_rules(names, tables),
            {"catalog": "system", "schema": _SYSTEM_SCHEMAS, "privileges": ["SELECT"]},
            {"privileges": []},
        ],
        # Everybody sees and ends their own queries; others' text may hold what one may not read.
        # safety: access-queries
        "queries": [*_of_admin(names, allow=["execute", "view", "kill"]), {"allow": ["execute"]}],
    }
    return json.dumps(document, indent=2) + "\n"


def _catalogs(names: Names) -> list[dict[str, Any]]:
    publisher = re.escape(names.publisher)
    catalogs = "|".join(filter(None, (names.lake, names.kafka, names.live)))
    return [
        *_of_admin(names, allow="owner"),
        # To grant what it reads it needs a whole catalog; what it may do with the tables is said below.
        {"user": publisher, "catalog": catalogs, "allow": "all"},
        {"catalog": f"{names.lake}|system", "allow": "read-only"},
        {"allow": "none"},
    ]


def _table_rules(names: Names, schema: str, table: str) -> list[dict[str, Any]]:
    """The publisher alone reads the table and its metadata tables; nobody its quarantine.

    That comes before all that is said of views: the name of a table may look like that of another one's view.
    """
    place = {"catalog": names.lake, "schema": re.escape(schema)}
    of_table, of_both = rf"{re.escape(table)}(\$.+)?", rf"{re.escape(table)}(_quarantine)?(\$.+)?"
    publisher = {"user": re.escape(names.publisher), **place}
    return [
        # safety: access-writes
        {**publisher, "table": of_table, "privileges": ["SELECT", "GRANT_SELECT"]},
        {**place, "table": of_both, "privileges": []},  # safety: access-tables-first
    ]


def _view_rules(names: Names, schema: str, table: str) -> list[dict[str, Any]]:
    """The publisher owns the views; everybody reads them."""
    place = {"catalog": names.lake, "schema": re.escape(schema)}
    views = f"{re.escape(table)}_{OURS}"  # safety: access-views
    publisher = {"user": re.escape(names.publisher), **place}
    return [
        {**publisher, "table": views, "privileges": ["SELECT", "OWNERSHIP", "GRANT_SELECT"]},
        {**place, "table": views, "privileges": ["SELECT"]},
    ]


def _live_rules(names: Names, tables: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """The publisher alone reads live tables, which have all rows; views over them may show some."""
    if names.live is None:
        return []
    # safety: access-live
    place = {"user": re.escape(names.publisher), "catalog": names.live}
    return [
        {
            **place,
            "schema": re.escape(schema),
            "table": rf"{re.escape(table)}(@[a-z0-9-]+)?(\$.+)?",
            "privileges": ["SELECT", "GRANT_SELECT"],
        }
        for schema, table in tables
    ]


def _of_admin(names: Names, **rights: Any) -> list[dict[str, Any]]:
    return [{"user": re.escape(names.admin), **rights}] if names.admin else []


def _schema_and_table(identifier: str) -> tuple[str, str]:
    """As Trino has them: in lower case."""
    schema, _, table = identifier.lower().rpartition(".")
    return schema, table


def _any_of(names: Iterable[str]) -> str:
    """A pattern for exactly these names; where there is none, for nothing."""
    return "|".join(sorted(map(re.escape, names))) or "(?!)"
