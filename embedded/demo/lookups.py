"""Asks the server over one kept connection, with little of our own time in what is measured."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from embedded.oracle import Row
from thermocline.errors import InternalError, NotReady, ServerUnreachable
from thermocline.process.clock import Clock
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam

# An answer that waits for Thermocline-Read-After may take 10 s, an extract's first chunk some seconds.
TIMEOUT_SECONDS: Final = 60.0
ARROW: Final = "application/vnd.apache.arrow.stream"

Entity = tuple[int, str]
"""app_id and user_id."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of one entity, what they reflect, and how long the answer took."""

    rows: list[dict[str, Any]]
    read_point: ReadPoint
    age_seconds: float
    seconds: float


class Lookups:
    """One connection to the server, for one thread. It opens again by itself after an error.

    Its methods raise `ServerUnreachable` and `NotReady`, which may pass, and `InternalError` for an answer
    that should never be given.
    """

    def __init__(self, url: str, table: str, clock: Clock) -> None:
        self._url = url
        self._table = table
        self._clock = clock
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_SECONDS)

    def entity_bytes(self, entity: Entity) -> tuple[bytes, float]:
        """The answer as it came, and the seconds it took."""
        query = urlencode({"app_id": entity[0], "user_id": entity[1]})
        began = self._clock.monotonic()
        content, _ = self._ask("GET", f"/v1/tables/{self._table}/rows?{query}")
        return content, self._clock.monotonic() - began

    def entity(self, entity: Entity) -> Answer:
        """All rows of an entity."""
        content, seconds = self.entity_bytes(entity)
        document = json.loads(content)
        age_seconds = document["age_seconds"] or 0.0
        return Answer(document["rows"], read_point_of(document), age_seconds, seconds)

    def entities(self, entities: Sequence[Entity], read_after: Seam) -> list[list[dict[str, Any]]]:
        """The rows of each entity, once the records before ``read_after`` are included."""
        return self.entities_at(entities, read_after)[0]

    def entities_at(
        self, entities: Sequence[Entity], read_after: Seam
    ) -> tuple[list[list[dict[str, Any]]], ReadPoint]:
        """The same, and the read point that they all have."""
        body = {"entities": [{"app_id": app, "user_id": user} for app, user in entities]}
        headers = {"Thermocline-Read-After": _read_after(read_after), "Content-Type": "application/json"}
        path = f"/v1/tables/{self._table}/rows:batch"
        content, _ = self._ask("POST", path, json.dumps(body).encode(), headers)
        document = json.loads(content)
        return [result["rows"] for result in document["results"]], read_point_of(document)

    def extract(self, read_after: Seam) -> tuple[bytes, ReadPoint]:
        """The whole table as an Arrow stream, and its read point."""
        headers = {"Thermocline-Read-After": _read_after(read_after), "Accept": ARROW}
        content, answered = self._ask("POST", f"/v1/tables/{self._table}/extract", b"", headers)
        return content, ReadPoint.parse(answered["thermocline-read-point"])

    def status(self) -> dict[str, Any]:
        """The table's part of ``/status``."""
        content, _ = self._ask("GET", "/status")
        status: dict[str, Any] = json.loads(content)["tables"][self._table]
        return status

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        try:
            self._connection.request(method, path, body, dict(headers or {}))
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ServerUnreachable(url=self._url, detail=f"{type(error).__name__}: {error}") from error
        if response.status == HTTPStatus.OK:
            return content, {name.lower(): value for name, value in response.headers.items()}
        detail = f"{response.status} {content.decode(errors='replace')}"
        if response.status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise NotReady(table=self._table, detail=detail)
        raise InternalError(detail=detail, where=f"{method} {path}")


def read_point_of(document: Mapping[str, Any]) -> ReadPoint:
    """The read point in a JSON answer."""
    point = document["read_point"]
    return ReadPoint(int(point["snapshot_id"]), Seam.from_dict(point["seam"]), Seam.from_dict(point["end"]))


def row_of_json(row: Mapping[str, Any]) -> Row:
    """A row of a JSON answer in the oracle's form."""
    return {**row, "updated_at": row["updated_at"] and datetime.fromisoformat(row["updated_at"])}


def _read_after(end: Seam) -> str:
    return ", ".join(
        f"{topic}/{partition}@{offset - 1}" for topic, partition, offset in end.items() if offset
    )
