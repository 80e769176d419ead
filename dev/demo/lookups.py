"""Asks the server over one kept connection, with little of our own time in what is measured."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from thermocline.dev.stack import TABLE
from thermocline.errors import InternalError, NotReady, ServerUnreachable
from thermocline.process.clock import Clock
from thermocline.rules.read_point import ReadPoint

TIMEOUT_SECONDS: Final = 60.0

Entity = tuple[int, str]
"""app_id and user_id."""


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """The rows of one entity, what they reflect, and how long the answer took."""

    rows: list[dict[str, Any]]
    read_point: ReadPoint
    seconds: float = 0.0


class LookupConnection:
    """One connection to the server, for one thread. It opens again by itself after an error."""

    def __init__(self, url: str, clock: Clock, key: str | None = None) -> None:
        """``key`` is an API key."""
        self._url = url
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._clock = clock
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_SECONDS)

    def entity(self, entity: Entity) -> LookupAnswer:
        """All rows of an entity. Raises as ``get``."""
        return answer_of(*self.entity_bytes(entity))

    def entity_bytes(self, entity: Entity) -> tuple[bytes, float]:
        """The same as it came, and the seconds it took."""
        query = urlencode({"app_id": entity[0], "user_id": entity[1]})
        began = self._clock.monotonic()
        content = self.get(f"/v1/tables/{TABLE}/rows?{query}")
        return content, self._clock.monotonic() - began

    def get(self, path: str) -> bytes:
        """An answer as it came.

        Raises:
            ServerUnreachable, NotReady: there was none, which may pass.
            InternalError: it should never be given.
        """
        try:
            self._connection.request("GET", path, headers=self._headers)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ServerUnreachable(url=self._url, detail=f"{type(error).__name__}: {error}") from error
        if response.status == HTTPStatus.OK:
            return content
        detail = f"{response.status} {content.decode(errors='replace')}"
        if response.status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise NotReady(table=TABLE, detail=detail)
        raise InternalError(detail=detail, where=f"GET {path}")


def answer_of(content: bytes, seconds: float = 0.0) -> LookupAnswer:
    """An answer as it came, read."""
    document = json.loads(content)
    return LookupAnswer(document["rows"], ReadPoint.parse(json.dumps(document["read_point"])), seconds)
