"""Who reads all the time: lookups, some asking for what they know of, extracts, and the live catalog."""

from __future__ import annotations

import io
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ServiceUnavailableError
from requests import RequestException

from tests.torture.judge import ANY, Answer, Findings, Judge
from tests.torture.ledger import Entity
from tests.torture.traffic import Traffic
from thermocline.cli.server_answers import Client
from thermocline.client import Retries
from thermocline.dev.oracle import row_of_json
from thermocline.dev.stack import TABLE
from thermocline.errors import (
    NotReady,
    ReadAfterTimeout,
    ServerUnreachable,
    StorageFailed,
    ThermoclineError,
)
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam

SESSIONS: Final = 3
PAUSE_SECONDS: Final = 0.03
EXTRACT_PAUSE_SECONDS: Final = 4.0
LOAD_PAUSE_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 0.1
WITH_READ_AFTER: Final = 0.2
# A connection of its own now and then, so that a session meets every API worker.
NEW_CONNECTION: Final = 0.02
COLUMNS: Final = ("app_id", "user_id", "key", "value", "updated_at")
# A server may say these while something is broken: they pass by themselves.
REFUSALS: Final = (NotReady, ReadAfterTimeout, ServerUnreachable, StorageFailed)


class EngineRefused(Exception):
    """An engine could not load a live table, or not reach its files; as ``code`` it is counted."""

    def __init__(self, code: str, error: Exception) -> None:
        super().__init__(f"{code}: {error}")
        self.code = code


class Readers:
    """Sessions against one server, until they are stopped."""

    def __init__(
        self,
        url: str,
        store: Mapping[str, str],
        traffic: Traffic,
        judge: Judge,
        findings: Findings,
        seed: int,
    ) -> None:
        """``store`` are the properties by which an engine reaches the table's files; none for a folder."""
        self.refused: Counter[str] = Counter()
        self._url = url
        self._store = store
        self._traffic = traffic
        self._judge = judge
        self._findings = findings
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._look_up, args=(f"session {n}", random.Random(seed + n)), daemon=True
            )
            for n in range(SESSIONS)
        ]
        self._threads.append(threading.Thread(target=self._extract, daemon=True))
        self._threads.append(threading.Thread(target=self._load, daemon=True))

    def start(self) -> None:
        """Begins to read."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends all sessions."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _look_up(self, session: str, drawn: random.Random) -> None:
        client = connect(self._url)
        while not self._stop.wait(PAUSE_SECONDS):
            if drawn.random() < NEW_CONNECTION:
                client.close()
                client = connect(self._url)
            entity = drawn.choice(self._traffic.entities)
            floor = self._traffic.acknowledged_end if drawn.random() < WITH_READ_AFTER else ANY
            self._try(lambda: lookup(client, session, entity, floor))  # noqa: B023 -- called at once
        client.close()

    def _extract(self) -> None:
        while not self._stop.wait(EXTRACT_PAUSE_SECONDS):
            with connect(self._url) as client:
                self._try(lambda: extract(client, "extracts"))

    def _load(self) -> None:
        while not self._stop.wait(LOAD_PAUSE_SECONDS):
            self._try(lambda: live(self._url, self._store, "live catalog"))

    def _try(self, ask: Callable[[], Answer]) -> None:
        try:
            answer = ask()
        except (*REFUSALS, EngineRefused) as error:
            self.refused[error.code] += 1
            self._stop.wait(RETRY_SECONDS)
        except ThermoclineError as error:
            self._findings.add_unforeseen("server error", f"{error.code}: {error.what} {error.cause}")
            self._stop.wait(RETRY_SECONDS)
        except (pa.ArrowInvalid, KeyError, ValueError) as error:
            self._findings.add("broken answer", f"{type(error).__name__}: {error}")
        else:
            self._judge.take(answer)


def connect(url: str) -> Client:
    """A client that repeats nothing, so that each refusal is counted."""
    return Client(url, retries=Retries(attempts_max=1))


def lookup(client: Client, session: str, entity: Entity, floor: Seam = ANY) -> Answer:
    """One entity's rows, at least as of the floor. Raises the server's errors."""
    parameters = {"app_id": str(entity[0]), "user_id": entity[1]}
    document = client.lookup(TABLE, parameters, read_after(floor))
    rows = [row_of_json(row) for row in document["rows"]]
    return Answer(session, "lookup", entity, rows, ReadPoint.parse(json.dumps(document["read_point"])), floor)


def batch(client: Client, session: str, entities: Sequence[Entity], floor: Seam) -> list[Answer]:
    """Several entities' rows at one read point, at least as of the floor. Raises the server's errors."""
    keys: list[dict[str, int | str]] = [
        {"app_id": app_id, "user_id": user_id} for app_id, user_id in entities
    ]
    document = client.batch(TABLE, keys, read_after(floor))
    point = ReadPoint.parse(json.dumps(document["read_point"]))
    return [
        Answer(session, "batch", entity, [row_of_json(row) for row in result["rows"]], point, floor)
        for entity, result in zip(entities, document["results"], strict=True)
    ]


def extract(client: Client, session: str) -> Answer:
    """The whole table. Raises the server's errors."""
    sink = io.BytesIO()
    point = client.extract(TABLE, None, "arrow", sink, lambda _: None)
    rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    return Answer(session, "extract", None, rows, point)


def live(url: str, store: Mapping[str, str], session: str) -> Answer:
    """The whole table as PyIceberg reads it by the live catalog. Raises `EngineRefused`."""
    try:
        catalog = RestCatalog("live", uri=f"{url}/iceberg", **store)
        table = catalog.load_table(f"app.{TABLE}")
    except (ServiceUnavailableError, RequestException) as error:
        raise EngineRefused("live-load", error) from error
    try:
        rows = table.scan(selected_fields=COLUMNS).to_arrow().to_pylist()
    except OSError as error:
        if not store:
            raise ValueError(f"a file of a live table can't be read: {error}") from error
        raise EngineRefused("live-store", error) from error  # the store fails on purpose
    point = ReadPoint.parse(table.properties["thermocline.read-point"])
    return Answer(session, "live", None, rows, point)


def read_after(floor: Seam) -> str | None:
    """The header that asks for the records before ``floor``."""
    parts = [f"{topic}/{p}@{offset - 1}" for topic, p, offset in floor.items() if offset]
    return ",".join(parts) or None
