"""JSON documents that have their schema beside them, as Kafka Connect's JsonConverter writes them.

``{"schema": ..., "payload": ...}`` is what the converter makes of a key or a value while its
``schemas.enable`` is on, as it is by default. `envelope` takes such documents apart, so that all else deals
with the payload alone; `documents` reads payloads by their schemas, by what `fitting` says of a column.
The rule stands in docs/formats/schemas.md, "Schemas in the records".
"""

from __future__ import annotations

from thermocline.rules.decode.connect.documents import ConnectDocuments
from thermocline.rules.decode.connect.envelope import (
    BEGINNING,
    ConnectEnvelope,
    are_in_keys,
    are_in_values,
    unwrapped,
)

__all__ = ["BEGINNING", "ConnectDocuments", "ConnectEnvelope", "are_in_keys", "are_in_values", "unwrapped"]
