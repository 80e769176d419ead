"""A schema registry in this process: real HTTP, the part of Confluent's protocol that reading needs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import UUID

from tests.local_http import Answering, LocalHttp

_NUMBERS = itertools.count(1)  # what a process remembers of a registry, it remembers by its URL
NOT_FOUND = {"error_code": 40403, "message": "Schema not found"}


@dataclass
class RegistryServer(LocalHttp):
    """Serves what ``schemas`` and ``subjects`` hold, by their paths; ``status`` overrides all answers.

    ``asked`` has each path that was asked for.
    """

    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    status: int = 0
    authorization: str = ""
    unknown: dict[str, Any] = field(default_factory=lambda: dict(NOT_FOUND))
    is_registry: bool = True
    path: str = field(default_factory=lambda: f"/registry-{next(_NUMBERS)}")

    def add(self, id_: int | UUID, schema: Any, form: str = "", **more: Any) -> None:
        """A schema as JSON says it, or as its text; ``form`` is how else it may be asked for."""
        kind = "ids" if isinstance(id_, int) else "guids"
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas[f"/schemas/{kind}/{id_}{form}"] = {"schema": text, **more}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Started, for as long as the block lasts."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def handler(self) -> type[Answering]:
        registry = self

        class Handler(Answering):
            def do_GET(self) -> None:  # noqa: N802  (its caller's name)
                path = self.path.removeprefix(registry.path)
                registry.asked.append(path)
                status, body = registry.answer(path, self.headers.get("Authorization", ""))
                self.give(status, body if isinstance(body, bytes) else json.dumps(body).encode())

        return Handler

    def answer(self, path: str, authorization: str) -> tuple[int, Any]:
        if self.authorization and authorization != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if self.status:
            return self.status, b"<html>no</html>"
        if path == "/schemas/types" and self.is_registry:
            return 200, ["JSON", "PROTOBUF", "AVRO"]
        # As registries do, it leaves aside what it does not know.
        found = self.schemas.get(path, self.schemas.get(path.partition("?")[0]))
        return (404, self.unknown) if found is None else (200, found)
