"""The live table of user attributes that the workload of the demo feeds."""

from __future__ import annotations

from typing import Final

from thermocline.rules.definition import LiveTable

PROFILES: Final = LiveTable.build(
    name="profiles",
    identifier="app.profiles",
    topics=["profiles"],
    key=["app_id", "user_id", "key"],
    entity=["app_id", "user_id"],
    columns={
        "app_id": "int",
        "user_id": "string",
        "key": "string",
        "value": "string",
        "updated_at": "timestamptz",
    },
    buckets=16,
)
