"""``thermocline status``: which sources answer, and how far each table is."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group
from rich.filesize import decimal
from rich.text import Text

from thermocline.cli.output import error_document, show, table
from thermocline.cli.session import AsJson, session_of
from thermocline.cli.status_report import (
    Limits,
    StatusSource,
    exit_code_of,
    is_unavailable,
    lag_of,
    remarks_on_serving,
    schema_change_document,
    served_tables,
    shown_headroom,
    shown_lag,
    shown_schema_change,
    shown_unread,
)
from thermocline.cli.status_routes import route_document, shown_route
from thermocline.cli.status_views import ask_trino, rows_of, views_of
from thermocline.cli.table import snapshot_document
from thermocline.errors import (
    CatalogUnreachable,
    KafkaUnreachable,
    ServerUnreachable,
    ThermoclineError,
    TrinoUnreachable,
    all_errors,
)
from thermocline.process.answered import answered
from thermocline.process.masking import mask_password

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from rich.table import Table

    from thermocline.kafka.log import Log
    from thermocline.settings import CatalogSettings, ServingSettings, Settings
    from thermocline.views.trino_client import Trino

# What is well answers in a tenth of a second, and on a machine that is busy fifteen times over in three. What
# is unavailable mostly refuses at once, so only something that hangs takes as long as this.
TIMEOUT_SECONDS: Final = 10.0
# For each table, of which ours says a few kilobytes; whatever else listens there may send without end.
ANSWER_BYTES_MAX: Final = 1 << 20
FIRST_SECONDS: Final = 2.0  # of it, for the oldest record that waits in each partition
ACCEPTED_SHOWN_MAX: Final = 10  # of what was accepted in the table's life, the newest
OWNER_FACTS: Final = (
    "host",
    "pid",
    "epoch",
    "since",
    "renewed",
    "lease_seconds",
    "ended",
    "stopped_by",
    "stopped_because",
)

STANDBY_FACTS: Final = ("host", "pid", "since", "renewed")


def status(
    context: typer.Context,
    without: Annotated[list[StatusSource] | None, typer.Option(help="Skip this source. Repeatable.")] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The server to ask. Default: that of the configuration.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How long to wait for what hangs.")
    ] = TIMEOUT_SECONDS,
    as_json: AsJson = False,
) -> int:
    """Check all components; show each table's seam and lag.

    Takes about a second; if a source hangs, as long as --timeout says, counted from when the program has
    started. Each table beyond ten adds up to a tenth of a second. As a probe, give it a --timeout that is
    some seconds below the probe's own. Exit codes: 0 healthy; 3 a source is unavailable; 2 a table
    or topic does not exist; 1 the server is stale, not ready, or does not serve a table, or the process
    that ingested a table is gone without having been stopped. If ingest of a table stopped with an error,
    the exit code of that error, such as 40.
    """
    settings = _with_routes(session_of(context).declared_settings(), set(without or ()), timeout)
    limits = Limits(timeout, len(settings.tables))
    own = None if url else settings.serving
    server_url = (url or settings.serving.url).rstrip("/")
    report = _report(settings, set(without or ()), server_url, own, limits)
    show(report, _described(report, limits), as_json)
    return exit_code_of(report)


def _with_routes(settings: Settings, without: AbstractSet[StatusSource], timeout: float) -> Settings:
    """The settings with the tables of routes, if the catalog says soon which there are."""
    if not settings.routes or StatusSource.CATALOG in without:
        return settings
    from thermocline.iceberg.routed_tables import with_routed_tables
    from thermocline.process.clock import SystemClock

    with suppress(ThermoclineError):  # which the report says of the catalog itself, or of the directory
        until = SystemClock().monotonic() + timeout / 2
        return answered({"routes": partial(with_routed_tables, settings)}, until).get("routes", settings)
    return settings


def _report(
    settings: Settings,
    without: AbstractSet[StatusSource],
    server_url: str,
    own: ServingSettings | None,
    limits: Limits,
) -> dict[str, Any]:
    """What could be found out, and the error of each source that is unavailable.

    ``own`` are the settings of the server at that URL, where they are these.
    """
    _import_all(settings)
    from thermocline.iceberg.catalog import open_catalog
    from thermocline.kafka.log import Log
    from thermocline.process.clock import SystemClock

    began_at = SystemClock().monotonic()
    questions: dict[StatusSource, Callable[[], tuple[Any, dict[str, Any]]]] = {
        StatusSource.KAFKA: partial(_ask_kafka, settings, Log),
        StatusSource.CATALOG: partial(_ask_catalog, settings, open_catalog),
        StatusSource.SERVER: lambda: (None, _ask_server(server_url, own, limits)),
    }
    if settings.views.enabled:
        questions[StatusSource.TRINO] = partial(ask_trino, settings)
    asked = {source: ask for source, ask in questions.items() if source not in without}
    answers = answered(asked, began_at + limits.sources)
    found = {source: answers.get(source) or _silent(settings, server_url, source, limits) for source in asked}
    opened = {source: answer[0] for source, answer in found.items()}
    log, trino = opened.get(StatusSource.KAFKA), opened.get(StatusSource.TRINO)
    entries: dict[str, dict[str, Any]] = {
        name: {"table": name, "identifier": table.identifier} for name, table in settings.tables.items()
    }
    if opened.get(StatusSource.CATALOG) is not None:
        catalog_of = _for_each_thread(partial(open_catalog, settings.catalog))
        tables = {
            name: partial(_look, settings, entry, catalog_of, log, trino) for name, entry in entries.items()
        }
        for name in entries.keys() - answered(tables, began_at + limits.all).keys():
            entries[name] = {**entries[name], "unanswered": True}
    return {
        **{source.value: answer for source, (_, answer) in found.items()},
        "tables": list(entries.values()),
    }


def _for_each_thread(open_catalog: Callable[[], Catalog]) -> Callable[[], Catalog]:
    """Gives each thread a catalog of its own: not every client may be used by several."""
    of_thread = threading.local()

    def catalog_of_thread() -> Catalog:
        if not hasattr(of_thread, "catalog"):
            of_thread.catalog = open_catalog()
        opened: Catalog = of_thread.catalog
        return opened

    return catalog_of_thread


def _import_all(settings: Settings) -> None:
    """Imports all that is asked with: on a busy machine that takes seconds, and is no source's silence."""
    names = ["sqlite3", "pandas", "pyiceberg.io.pyarrow", f"pyiceberg.catalog.{settings.catalog.type}"]
    names += [
        "thermocline.iceberg.foreign_schema",
        "thermocline.iceberg.holder",
        "thermocline.iceberg.routed_tables",
        "thermocline.rules.rotation",
    ]
    names += ["thermocline.rules.identity", "thermocline.rules.unread_counts", "thermocline.kafka.standing"]
    names += [
        "thermocline.iceberg.alterations",
        "thermocline.cli.server_access",
        "thermocline.cli.server_answers",
        "thermocline.client.blocking",
    ]
    names += (
        ["thermocline.views.trino_client", "thermocline.views.view_status", "thermocline.views.publish"]
        if settings.views.enabled
        else []
    )
    for name in names:
        with suppress(ImportError):  # what is not installed is said where it is needed
            import_module(name)


def _silent(
    settings: Settings, server_url: str, source: StatusSource, limits: Limits
) -> tuple[None, dict[str, Any]]:
    """What is said of a source that has not answered in time."""
    detail = f"no answer within {limits.sources:g} s"
    servers, uri = settings.kafka.bootstrap_servers, settings.catalog.shown()["uri"]
    error, at = {
        StatusSource.KAFKA: (KafkaUnreachable(bootstrap_servers=servers, detail=detail), servers),
        StatusSource.CATALOG: (CatalogUnreachable(uri=uri, detail=detail), uri),
        StatusSource.TRINO: (TrinoUnreachable(url=settings.views.url, detail=detail), settings.views.url),
        StatusSource.SERVER: (
            ServerUnreachable(url=server_url, detail=detail),
            mask_password(server_url),
        ),
    }[source]
    return None, {"at": at, "error": error_document(error)}


def _ask_kafka(settings: Settings, log_of: type[Log]) -> tuple[Log | None, dict[str, Any]]:
    answer: dict[str, Any] = {"at": settings.kafka.bootstrap_servers}
    try:
        log = log_of(settings.kafka)
        return log, answer | {"cluster_id": log.cluster_id()}
    except ThermoclineError as error:
        return None, answer | {"error": error_document(error)}


def _ask_catalog(
    settings: Settings, open_catalog: Callable[[CatalogSettings], Catalog]
) -> tuple[Catalog | None, dict[str, Any]]:
    answer: dict[str, Any] = {"at": settings.catalog.shown()["uri"], "type": settings.catalog.type}
    try:
        return open_catalog(settings.catalog), answer
    except ThermoclineError as error:
        return None, answer | {"error": error_document(error)}


def _ask_server(url: str, own: ServingSettings | None, limits: Limits) -> dict[str, Any]:
    import httpx

    from thermocline.cli.server_access import access_errors, server_access
    from thermocline.client.blocking import Connection
    from thermocline.client.errors import ClientError

    bytes_max = max(1, limits.tables) * ANSWER_BYTES_MAX
    answer: dict[str, Any] = {"at": mask_password(url)}
    try:
        with access_errors():
            connection = Connection(url, timeout_seconds=limits.sources, **server_access(own))
        with closing(connection), connection.http.stream("GET", "/status") as response:
            body = _first_bytes(response.iter_bytes(), bytes_max)
            if (refusal := _refusal_of(response.status_code, body)) is not None:
                return answer | {"error": error_document(refusal)}
            response.raise_for_status()
            return answer | {"status": json.loads(body)}
    except httpx.HTTPStatusError as error:
        detail = f"it answered {error.response.status_code} {error.response.reason_phrase}"
    except (httpx.HTTPError, ClientError, ValueError) as error:
        detail = str(error) or type(error).__name__
    except ThermoclineError as error:
        return answer | {"error": error_document(error)}
    return answer | {"error": error_document(ServerUnreachable(url=url, detail=detail))}


def _refusal_of(status_code: int, body: bytes) -> ThermoclineError | None:
    """The server's own error, such as that it wants a key; None for any other answer."""
    from thermocline.cli.server_answers import error_of

    if status_code < 400:
        return None
    problem = json.loads(body) if body.startswith(b"{") else {}
    is_ours = problem.get("code") in all_errors() and isinstance(problem.get("facts"), dict)
    return error_of(problem) if is_ours else None


def _first_bytes(chunks: Iterator[bytes], bytes_max: int) -> bytes:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > bytes_max:
            break
    return bytes(content[:bytes_max])


def _look(
    settings: Settings,
    entry: dict[str, Any],
    open_catalog: Callable[[], Catalog],
    log: Log | None,
    trino: Trino | None,
) -> None:
    """Adds to a table's entry what it finds, piece by piece: of what hangs, the rest is there."""
    from thermocline.iceberg.alterations import last_by_contract
    from thermocline.iceberg.catalog import (
        ACCEPTED_PROPERTY,
        UNREAD_COUNTS_PROPERTY,
        UNREAD_PROPERTY,
        current_state,
        definition_of,
        load_table,
    )
    from thermocline.iceberg.foreign_schema import check_schema
    from thermocline.iceberg.holder import holder_of, standby_of
    from thermocline.iceberg.routed_tables import directory_in
    from thermocline.kafka.standing import standing_at
    from thermocline.process.clock import SystemClock
    from thermocline.rules.identity import check_log
    from thermocline.rules.rotation import only_there
    from thermocline.rules.unread_counts import UnreadCounts

    name = entry["table"]
    try:
        loaded = load_table(open_catalog(), name, entry["identifier"])
        if (holder := holder_of(loaded.io, loaded.location())) is not None:
            entry["owner"] = {fact: getattr(holder, fact) for fact in OWNER_FACTS}
            entry["owner"]["is_gone"] = holder.is_gone(SystemClock().now_ms())
            standby = standby_of(loaded.io, loaded.location())
            if standby is not None and not standby.is_gone(SystemClock().now_ms()):
                entry["standby"] = {fact: getattr(standby, fact) for fact in STANDBY_FACTS}
        # Before anything that may fail: whoever looks why wants to see what was done before.
        entry["accepted"] = json.loads(loaded.properties.get(ACCEPTED_PROPERTY, "[]"))[-ACCEPTED_SHOWN_MAX:]
        entry["unread_fields"] = json.loads(loaded.properties.get(UNREAD_PROPERTY, "[]"))
        entry["unread"] = UnreadCounts.of_json(
            loaded.properties.get(UNREAD_COUNTS_PROPERTY, "")
        ).to_document()
        entry["schema_change"] = schema_change_document(last_by_contract(loaded.properties))
        if name in settings.routes:
            entry["route"] = route_document(directory_in(loaded.properties, name))
        state = current_state(loaded, name)
        entry["snapshot"] = snapshot_document(state)
        definition = definition_of(loaded, name)
        check_schema(loaded, definition)
        if log is not None:
            there = only_there(definition, log)
            topics = tuple(topic for topic in state.seam.topics if topic in there.topics)
            entry["lag"] = lag_of(
                state.seam, log.starts(topics), log.ends(topics), log.open_transactions(topics)
            )
            clock = SystemClock()
            config = settings.kafka.client_config()
            standing = standing_at(log, config, there, state, clock, seconds=FIRST_SECONDS)
            entry |= standing.document(clock.now_ms())
            check_log(name, state, log, there, clock.now_ms())
        if trino is not None:
            entry["views"] = views_of(settings, name, definition, state, trino)
    except ThermoclineError as error:
        entry["error"] = error_document(error)


def _described(report: dict[str, Any], limits: Limits) -> Group:
    asked = [name for name in StatusSource if name in report]
    sources = [(name, report[name]["at"], _source(name, report[name])) for name in asked]
    tables = [
        (
            entry["table"],
            entry.get("snapshot", {}).get("snapshot_id", ""),
            _compact(entry.get("snapshot", {}).get("seam", {})),
            entry["lag"]["offsets"] if "lag" in entry else "unknown",
            shown_lag(entry),
            shown_headroom(entry),
        )
        for entry in report["tables"]
    ]
    listed = table(("table", "snapshot", "seam", "lag (offsets)", "lag (s)", "headroom"), tables)
    parts: list[Table | Text] = [table(("source", "at", "state"), sources)]
    parts += [listed if tables else Text("no table configured")]
    # Below their tables, since a sentence in a column makes all others narrow.
    remarks = (
        f"{entry['table']}: {one}" for entry in report["tables"] for one in _remarks(entry, limits.all)
    )
    parts += _lines(remarks)
    if served := list(_served(report.get("server", {}))):
        parts.append(table(("served", "ready", "age (s)", "stale", "tailer"), served))
    parts += _lines(remarks_on_serving(report))
    if views := list(rows_of(report)):
        parts.append(table(("view", "snapshot", "ends at", "state"), views))
    return Group(*[line for part in parts for line in (part, Text())][:-1])


def _lines(remarks: Iterable[str]) -> list[Text]:
    text = "\n".join(remarks)
    return [Text(text)] if text else []


def _served(server: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    for name, entry in served_tables(server).items():
        age, tailer = entry.get("age_seconds"), entry.get("tailer", {})
        shown_age = "unknown" if age is None else f"{age:.2f}"
        yield name, entry.get("ready"), shown_age, entry.get("stale"), tailer.get("state", "not started")


def _source(name: StatusSource, source: dict[str, Any]) -> str:
    if "error" in source:
        error, word = source["error"], "unavailable" if is_unavailable(name, source) else "not asked"
        return f"{word} [{error['code']}] {error['cause'] or error['what']}"
    if "cluster_id" in source:
        return f"answers, cluster {source['cluster_id']}"
    if "version" in source:
        return f"answers, version {source['version']}"
    match source:
        case {"status": {"disk": {"free_bytes": int(free), "kept_bytes": int(kept)}}}:
            room = f"its disk has {decimal(free)} free"
            if free < kept:
                return f"answers; {room}, and tailers pause below {decimal(kept)}"
            return f"answers; {room}, of which it needs {decimal(kept)}"
    return "answers"


def _remarks(entry: dict[str, Any], seconds_max: float) -> Iterator[str]:
    """What a person should know of a table beside its numbers."""
    if "error" in entry:
        error = entry["error"]
        yield f"[{error['code']}] {error['what']}  next: {_first_line(error['next'])}"
    elif (owner := entry.get("owner", {})).get("stopped_by"):
        yield f"ingest stopped {owner['ended']}: [{owner['stopped_by']}] {owner['stopped_because']}"
    elif "unanswered" in entry:
        yield f"no answer within {seconds_max:g} s"
    elif "snapshot" not in entry:
        yield "the catalog was not asked, or does not answer"
    elif "lag" not in entry:
        yield from _owned(entry)
        yield "Kafka was not asked, or does not answer"
        yield from _noted(entry)
    else:
        yield from _owned(entry)
        yield from shown_route(entry)
        yield from _remarks_on_log(entry["lag"])
        yield from _noted(entry)


def _noted(entry: dict[str, Any]) -> Iterator[str]:
    """What the table itself notes."""
    for one in entry["accepted"][-1:]:
        yield f"accepted {one['at']}: {one['code']} {' '.join(one['facts'])}"
    if change := entry["schema_change"]:
        yield shown_schema_change(change)
    if entry["unread_fields"]:
        yield shown_unread(entry)


def _remarks_on_log(lag: dict[str, Any]) -> Iterator[str]:
    if outside := lag["outside_log"]:
        yield f"the log does not hold the seam of {', '.join(outside)}"
    if new := lag["new_partitions"]:
        yield f"new: {', '.join(new)}"
    for one in lag["open_transactions"]:
        yield (
            f"[transaction-open] {one['partition']}: a transaction open since offset {one['begins_at']:,} "
            f"holds back {one['held_back']:,} offsets"
        )


def _owned(entry: dict[str, Any]) -> Iterator[str]:
    owner = entry.get("owner", {})
    if owner.get("is_gone"):
        process = f"process {owner['pid']} on {owner['host']}"
        yield f"ingest is gone: {process} last renewed its lease at {owner['renewed']}, by its clock"
    elif owner.get("ended"):
        yield f"no owner since {owner['ended']}"
    if standby := entry.get("standby"):
        yield f"standby: process {standby['pid']} on {standby['host']}"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":")) if document else ""
