"""Limits for queries on the views, in Trino and so on the brokers: examples to start from.

Every query on a live view reads the hot window from Kafka, so the number that run at once bounds what the
brokers are asked for. Resource groups cannot tell a query by the view it reads, only by who asks.
"""

from __future__ import annotations

import json
import re
from typing import Final

LIVE_TAG: Final = "live"
"""The client tag of queries on the live views whose hot window is small beside the table."""


def resource_groups(publisher: str) -> str:
    """Gives the file of resource groups: the publisher never waits for analysts."""
    analyst = {
        "name": "${USER}",
        "softMemoryLimit": "30%",
        "hardConcurrencyLimit": 4,
        "maxQueued": 50,
    }
    document = {
        "rootGroups": [
            {
                "name": "publisher",
                "softMemoryLimit": "20%",
                "hardConcurrencyLimit": 10,
                "maxQueued": 100,
            },
            {
                "name": "analysts",
                "softMemoryLimit": "80%",
                "hardConcurrencyLimit": 10,
                "maxQueued": 200,
                "subGroups": [analyst],
            },
        ],
        "selectors": [
            {"user": re.escape(publisher), "group": "publisher"},
            {"group": "analysts.${USER}"},
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def session_properties() -> str:
    """Gives the file of session properties: a view cannot carry any of its own.

    Of the Kafka side Trino knows no size, so it would send both sides of the anti-join around. Hot keys that
    fit into memory are better sent to where the cold rows are.
    """
    document = [
        {"group": "analysts.*", "sessionProperties": {"query_max_run_time": "10m"}},
        {
            "clientTags": [LIVE_TAG],
            "sessionProperties": {
                "join_distribution_type": "BROADCAST",
                "join_reordering_strategy": "NONE",
            },
        },
    ]
    return json.dumps(document, indent=2) + "\n"
