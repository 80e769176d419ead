"""The checks of ``config check --connect``: Kafka and its topics, the registry, the catalog, the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from thermocline.cli.output import counted, error_document
from thermocline.cli.topic import topics_of
from thermocline.errors import (
    AlterationRefused,
    CatalogUnreachable,
    ExitCode,
    KafkaUnreachable,
    RegistryUnreachable,
    ThermoclineError,
)
from thermocline.process.answered import answered
from thermocline.process.clock import SystemClock
from thermocline.process.masking import mask_password
from thermocline.text.typed import command

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.iceberg.store_check import Place
    from thermocline.settings import Settings

# Longer than each takes by itself: the catalog, and then the store.
SECONDS_MAX: Final = 20.0
_UNKNOWN_ID: Final = (1 << 31) - 1  # the greatest schema id: every registry can say that it has no such one
_WIDTH: Final = 10


@dataclass(frozen=True, slots=True)
class Tried:
    """One thing that was tried: what, where, and what came of it."""

    of: str
    at: str
    found: str = ""
    error: ThermoclineError | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON output."""
        document = {"of": self.of, "at": self.at, "ok": self.error is None}
        return document | ({"error": error_document(self.error)} if self.error else {"found": self.found})

    def line(self) -> Text:
        """For people; an error with its next step below it."""
        head = f"{self.of:<{_WIDTH}} {self.at}: "
        if self.error is None:
            return Text(f"{head}ok{self.found and f', {self.found}'}")
        document = error_document(self.error)
        said = [f"[{self.error.code}] {self.error.what}", *filter(None, [str(document["cause"])])]
        return Text(f"\n{'':<{_WIDTH}} ".join([head + said[0], *said[1:], f"next: {document['next']}"]))


def tried(settings: Settings) -> list[Tried]:
    """Each, in the order in which they are needed. Writes one small file into the store, and deletes it."""
    asked: dict[str, Callable[[], Iterable[Tried]]] = {
        "kafka": lambda: _try_kafka(settings),
        "catalog": lambda: _try_catalog(settings),
    }
    if settings.registry.url:
        asked["registry"] = lambda: _try_registry(settings)
    silent = {
        "kafka": KafkaUnreachable(bootstrap_servers=_servers(settings), detail=_SILENT),
        "registry": RegistryUnreachable(url=settings.registry.url, detail=_SILENT),
        "catalog": CatalogUnreachable(uri=_uri(settings), detail=_SILENT),
    }
    _import_clients()
    answers = answered(asked, SystemClock().monotonic() + SECONDS_MAX)
    return [
        one
        for of in ("kafka", "registry", "catalog")
        if of in asked
        for one in answers.get(of, [Tried(of, _address(settings, of), error=silent[of])])
    ]


def exit_code(done: Sequence[Tried]) -> int:
    """That of the gravest error."""
    return max((int(one.error.exit_code) for one in done if one.error), default=int(ExitCode.DONE))


_SILENT: Final = f"no answer within {SECONDS_MAX:g} s"


def _import_clients() -> None:
    """Before the time runs: that takes a second on a slow machine."""
    import thermocline.iceberg.store_check
    import thermocline.kafka.log  # noqa: F401


def _try_kafka(settings: Settings) -> list[Tried]:
    from thermocline.kafka.log import Log

    servers = _servers(settings)
    try:
        log = Log(settings.kafka)
        done = [Tried("kafka", servers, f"cluster {log.cluster_id()}")]
    except ThermoclineError as error:
        return [Tried("kafka", servers, error=error)]
    done += [_try_topic(log, topic) for topic in topics_of(settings)]
    patterns = [pattern for table in settings.tables.values() for pattern in table.topic_patterns]
    return [*done, *(_try_pattern(log, pattern) for pattern in dict.fromkeys(patterns))]


def _try_topic(log: Any, topic: str) -> Tried:
    try:
        return Tried("topic", topic, counted(log.describe([topic])[topic].partitions, "partition"))
    except ThermoclineError as error:
        return Tried("topic", topic, error=error)


def _try_pattern(log: Any, pattern: str) -> Tried:
    from thermocline.rules.topic_patterns import finds

    try:
        found = sum(finds([pattern], topic) for topic in log.names())
        return Tried("topic", pattern, f"{counted(found, 'topic')} found")
    except ThermoclineError as error:
        return Tried("topic", pattern, error=error)


def _try_registry(settings: Settings) -> list[Tried]:
    at = mask_password(settings.registry.url)
    try:
        registry = settings.registry.client()
        assert registry is not None
        registry.of(_UNKNOWN_ID)
        return [Tried("registry", at)]
    except ThermoclineError as error:
        return [Tried("registry", at, error=error)]


def _try_catalog(settings: Settings) -> list[Tried]:
    from thermocline.iceberg.catalog import find_table, open_catalog
    from thermocline.iceberg.catalog_properties import pyiceberg_properties, sqlite_path
    from thermocline.iceberg.store_check import new_place, place_in_warehouse

    at = _uri(settings)
    sqlite = sqlite_path(settings.catalog.uri)
    if sqlite is not None and not Path(sqlite).exists():
        new = Tried("catalog", at, "made with the first table")
        return [new, _try_place(place_in_warehouse(pyiceberg_properties(settings.catalog)), "")]
    try:
        catalog = open_catalog(settings.catalog)
        tables = {name: find_table(catalog, one.identifier) for name, one in settings.tables.items()}
        places = {
            name: (found.io, found.location())
            if found is not None
            else new_place(catalog, name, settings.tables[name].identifier)
            for name, found in tables.items()
        }
    except ThermoclineError as error:
        return [Tried("catalog", at, error=error)]
    there = sum(found is not None for found in tables.values())
    words = f"{there:,} of {counted(len(tables), 'table')} there"
    compared = [_try_table(settings, name, found) for name, found in tables.items() if found is not None]
    return [Tried("catalog", at, words), *compared, *_try_places(places)]


def _try_table(settings: Settings, name: str, table: Table) -> Tried:
    """Whether the table is as the file says; an error only where no alteration makes it so."""
    from thermocline.iceberg.compared import compared

    try:
        found = compared(table, settings.table(name), name)
        if found.refusals:
            raise AlterationRefused(table=name, problems=found.refusals)
    except ThermoclineError as error:
        return Tried("table", name, error=error)
    if found.is_same:
        return Tried("table", name, "as the file says")
    count = counted(len(found.differences) + len(found.changed_by_others), "difference")
    return Tried("table", name, f"{count} from the file: {command(f'table diff {name}')}")


def _try_places(places: Mapping[str, Place | None]) -> Iterable[Tried]:
    """One for each store, and for each access to it: tables beside each other are reached alike."""
    done: dict[object, Tried] = {}
    for name, place in places.items():
        store = place and ("/".join(place[1].split("/")[:3]), getattr(place[0], "access", None))
        if store not in done:
            done[store] = _try_place(place, name)
    return done.values()


def _try_place(place: Place | None, name: str) -> Tried:
    from thermocline.iceberg.store_check import check_store

    if place is None:
        return Tried("store", "not tried", "only the catalog knows where; `table create` tries it")
    try:
        check_store(*place, name)
        return Tried("store", place[1], "wrote, read and deleted a file")
    except ThermoclineError as error:
        return Tried("store", place[1], error=error)


def _servers(settings: Settings) -> str:
    return settings.kafka.bootstrap_servers


def _uri(settings: Settings) -> str:
    return str(settings.catalog.shown()["uri"])


def _address(settings: Settings, of: str) -> str:
    return {"kafka": _servers(settings), "registry": settings.registry.url, "catalog": _uri(settings)}[of]
