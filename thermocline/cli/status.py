"""``thermocline status``: what is there, how far it is, and which source is away."""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer
from rich.console import Group
from rich.text import Text

from thermocline.cli.output import error_document, show, table
from thermocline.cli.session import AsJson, session_of
from thermocline.cli.status_views import ask_trino, rows_of, views_of
from thermocline.cli.table import snapshot_document
from thermocline.errors import ExitCode, ServerUnreachable, ThermoclineError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from thermocline.log import Log, OpenTransaction
    from thermocline.seam import Seam
    from thermocline.settings import ServingSettings, Settings
    from views.trino_client import Trino

SERVER_TIMEOUT_SECONDS: Final = 2.0  # a server that is well answers in milliseconds
ANSWER_BYTES_MAX: Final = 1 << 20  # ours is a few kilobytes; whatever else listens there may send without end
ACCEPTED_SHOWN_MAX: Final = 10  # of what was accepted in the table's life, the newest
LISTENING_ON_ALL: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 -- to be asked, not listened on


def status(context: typer.Context, as_json: AsJson = False) -> int:
    """Show whether Kafka, the catalog and a server answer, and for each table its snapshot, seam and lag."""
    report = _report(session_of(context).settings())
    show(report, _described(report), as_json)
    sources = (report["kafka"], report["catalog"], report["server"])
    return ExitCode.DONE if any("error" not in source for source in sources) else ExitCode.AWAY


def _report(settings: Settings) -> dict[str, Any]:
    """What could be found out, and the error of each source that is away.

    Such a source is asked once, not for every table: each question waits for its timeout.
    """
    log, kafka = _ask_kafka(settings)
    catalog, answer = _ask_catalog(settings)
    trino, views = ask_trino(settings) if settings.views.enabled else (None, None)
    return {
        "kafka": kafka,
        "catalog": answer,
        "server": _ask_server(settings.serving),
        **({} if views is None else {"trino": views}),
        "tables": [_table(settings, name, catalog, log, trino) for name in settings.tables],
    }


def _ask_kafka(settings: Settings) -> tuple[Log | None, dict[str, Any]]:
    from thermocline.log import Log

    answer: dict[str, Any] = {"at": settings.kafka.bootstrap_servers}
    try:
        log = Log(settings.kafka)
        return log, answer | {"cluster_id": log.cluster_id()}
    except ThermoclineError as error:
        return None, answer | {"error": error_document(error)}


def _ask_catalog(settings: Settings) -> tuple[Catalog | None, dict[str, Any]]:
    from thermocline.catalog import open_catalog

    answer: dict[str, Any] = {"at": settings.catalog.shown()["uri"], "type": settings.catalog.type}
    try:
        return open_catalog(settings.catalog), answer
    except ThermoclineError as error:
        return None, answer | {"error": error_document(error)}


def _ask_server(serving: ServingSettings) -> dict[str, Any]:
    url = f"http://{LISTENING_ON_ALL.get(serving.host, serving.host)}:{serving.port}"
    try:
        with urllib.request.urlopen(f"{url}/status", timeout=SERVER_TIMEOUT_SECONDS) as response:  # noqa: S310
            return {"at": url, "status": json.loads(response.read(ANSWER_BYTES_MAX))}
    except (OSError, ValueError, http.client.HTTPException) as error:
        detail = str(getattr(error, "reason", error))  # urllib wraps what happened
        return {"at": url, "error": error_document(ServerUnreachable(url=url, detail=detail))}


def _table(
    settings: Settings, name: str, catalog: Catalog | None, log: Log | None, trino: Trino | None
) -> dict[str, Any]:
    from thermocline.catalog import ACCEPTED_PROPERTY, current_state, definition_of, load_table
    from thermocline.clock import SystemClock
    from thermocline.identity import check_log

    identifier = settings.tables[name].identifier
    found: dict[str, Any] = {"table": name, "identifier": identifier}
    if catalog is None:
        return found
    try:
        loaded = load_table(catalog, name, identifier)
        # Before anything that may fail: whoever looks why wants to see what was done before.
        found["accepted"] = json.loads(loaded.properties.get(ACCEPTED_PROPERTY, "[]"))[-ACCEPTED_SHOWN_MAX:]
        state = current_state(loaded, name)
        found["snapshot"] = snapshot_document(state)
        definition = definition_of(loaded, name)
        if trino is not None:
            found["views"] = views_of(settings, name, definition, state, trino)
        if log is not None:
            topics = state.seam.topics
            found["lag"] = _lag(
                state.seam, log.starts(topics), log.ends(topics), log.open_transactions(topics)
            )
            check_log(name, state, log, definition, SystemClock().now_ms())
    except ThermoclineError as error:
        found["error"] = error_document(error)
    return found


def _lag(seam: Seam, starts: Seam, ends: Seam, held: Sequence[OpenTransaction]) -> dict[str, Any]:
    """Offsets between seam and end, and the partitions where the two do not fit or where something waits.

    Those are the partitions whose seam the log does not hold any more, or yet, those that are new (the topic
    gained them, so they will be read from their first offset), and those that an open transaction holds back.
    """
    known = {(topic, partition): offset for topic, partition, offset in seam.items()}
    logged = {(topic, partition): starts.get((topic, partition)) for topic, partition, _ in ends.items()}
    outside = [place for place, offset in known.items() if not starts.get(place) <= offset <= ends.get(place)]
    return {
        "offsets": sum(max(ends.get(place) - offset, 0) for place, offset in (logged | known).items()),
        "log_start": starts.to_dict(),
        "log_end": ends.to_dict(),
        "outside_log": _places(outside),
        "new_partitions": _places(place for place in logged if place not in known),
        "open_transactions": [
            {
                "partition": f"{one.topic}/{one.partition}",
                "begins_at": one.begins_at,
                "held_back": one.held_back,
            }
            for one in held
        ],
    }


def _places(places: Iterable[tuple[str, int]]) -> list[str]:
    return [f"{topic}/{partition}" for topic, partition in places]


def _described(report: dict[str, Any]) -> Group:
    asked = [name for name in ("kafka", "catalog", "server", "trino") if name in report]
    sources = [(name, report[name]["at"], _source(report[name])) for name in asked]
    tables = [
        (
            entry["table"],
            entry.get("snapshot", {}).get("snapshot_id", ""),
            _compact(entry.get("snapshot", {}).get("seam", {})),
            entry["lag"]["offsets"] if "lag" in entry else "unknown",
            _remark(entry),
        )
        for entry in report["tables"]
    ]
    listed = table(("table", "snapshot", "seam", "lag (offsets)", ""), tables)
    parts = [table(("source", "at", ""), sources), listed if tables else Text("no table configured")]
    if served := list(_served(report["server"])):
        parts.append(table(("served", "ready", "age (s)", "stale", "tailer"), served))
    if views := list(rows_of(report)):
        parts.append(table(("view", "snapshot", "ends at", ""), views))
    return Group(*[line for part in parts for line in (part, Text())][:-1])


def _served(server: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """What the server says of each of its tables; nothing where what listens there is no server of ours."""
    match server:
        case {"status": {"tables": dict(tables)}}:
            for name, entry in tables.items():
                age, tailer = entry.get("age_seconds"), entry.get("tailer", {})
                shown_age = "unknown" if age is None else f"{age:.2f}"
                yield name, entry["ready"], shown_age, entry.get("stale"), tailer.get("state", "not started")


def _source(source: dict[str, Any]) -> str:
    if "error" in source:
        return f"away [{source['error']['code']}] {source['error']['cause'] or source['error']['what']}"
    if "cluster_id" in source:
        return f"answers, cluster {source['cluster_id']}"
    if "version" in source:
        return f"answers, version {source['version']}"
    return "answers"


def _remark(entry: dict[str, Any]) -> str:
    if "error" in entry:
        error = entry["error"]
        return f"[{error['code']}] {error['what']}  next: {_first_line(error['next'])}"
    if "snapshot" not in entry:
        return "the catalog is away"
    if "lag" not in entry:
        return "Kafka is away"
    outside, new = entry["lag"]["outside_log"], entry["lag"]["new_partitions"]
    remarks = [f"the log does not hold the seam of {', '.join(outside)}"] if outside else []
    remarks += [f"new: {', '.join(new)}"] if new else []
    remarks += [
        f"[transaction-open] {one['partition']}: a transaction open since offset {one['begins_at']:,} "
        f"holds back {one['held_back']:,} offsets"
        for one in entry["lag"]["open_transactions"]
    ]
    remarks += [
        f"accepted {one['at']}: {one['code']} {' '.join(one['facts'])}" for one in entry["accepted"][-1:]
    ]
    return "; ".join(remarks)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":")) if document else ""
