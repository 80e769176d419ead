"""Topics in Trino: their names, and the table descriptions that make them tables.

A description has no section for key or message: Trino then gives both as text, and what is in them is the
views' business. A decoder of Trino's would fail the whole query on one field of another type.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

SCHEMA: Final = "default"
"""The one schema of the Kafka catalog."""

_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*")
_DIGEST_CHARACTERS: Final = 8


def table_name(topic: str) -> str:
    """Gives a topic's name as a table: the same where SQL takes it unquoted, else one that is close.

    It depends on no other topic. Topics that differ in case or in a sign only get different names.
    """
    if _PLAIN.fullmatch(topic):
        return topic
    digest = hashlib.sha256(topic.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    close = re.sub(r"[^a-z0-9_]", "_", topic.lower())
    return f"{'_' if close[0].isdigit() else ''}{close}_{digest}"  # safety: trino-topic-name


def description(topic: str) -> str:
    """Gives the text of a topic's table description.

    It must be there for every table: Trino takes a table without one for a topic named `schema.table`, and
    a topic that does not exist has no rows.
    """
    # safety: trino-topic
    described = {"tableName": table_name(topic), "schemaName": SCHEMA, "topicName": topic}
    return json.dumps(described, indent=2) + "\n"
