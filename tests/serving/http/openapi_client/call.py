"""Calls a server by the client that ``openapi-python-client`` made; runs apart from the tests."""

from __future__ import annotations

import json
import sys
from typing import Any

from thermocline_openapi import Client, models  # type: ignore[import-not-found]
from thermocline_openapi.api.profiles import (  # type: ignore[import-not-found]
    batch_profiles,
    extract_profiles,
    rows_profiles,
)
from thermocline_openapi.api.server import list_tables  # type: ignore[import-not-found]

client = Client(base_url=sys.argv[1])
found: Any = rows_profiles.sync(client=client, app_id=7, user_id="u1")
missing: Any = rows_profiles.sync(client=client, app_id=7, user_id="u1", key="none")
entities = [models.ProfilesEntity(app_id=7, user_id=name) for name in ("u1", "nobody")]
several: Any = batch_profiles.sync(client=client, body=models.ProfilesBatchBody(entities=entities))
columns = [models.ProfilesExtractBodyColumnsType0Item.KEY]
wanted = models.ProfilesExtractBody(columns=columns, where="user_id = 'u1'")
lines = extract_profiles.sync_detailed(client=client, body=wanted, accept="application/x-ndjson").content
tables: Any = list_tables.sync(client=client)
assert isinstance(found, models.ProfilesRowsAnswer)
assert isinstance(missing, models.Problem)
print(
    json.dumps(
        [
            [row.value for row in found.rows],
            missing.code,
            [len(one.rows) for one in several.results],
            len(lines.splitlines()),
            tables.tables,
        ]
    )
)
