"""``thermocline try``: one record before and after each step on its way to a row, and what it replaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group
from rich.text import Text

from thermocline.cli.output import shortened, show
from thermocline.cli.session import AsJson, TableName, session_of
from thermocline.cli.stopping import orderly_end
from thermocline.errors import BadParameter, ExitCode, OffsetsGone
from thermocline.rules.read_point import parse_read_after
from thermocline.text.shown import json_form, json_text
from thermocline.text.typed import command

if TYPE_CHECKING:
    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.kafka.facts import RecordChunk
    from thermocline.rules.decode.steps import Step
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.seam import Seam
    from thermocline.settings import Settings

_WIDTH: Final = 15
_OPTION: Final = "--from"
Place = tuple[str, int, int]


def try_record(
    context: typer.Context,
    name: TableName,
    record: Annotated[
        str, typer.Option(_OPTION, metavar="TOPIC/PARTITION@OFFSET", help="The record to look at.")
    ],
    as_json: AsJson = False,
) -> int:
    """Show one record before and after each step, or why it is bad.

    The steps are those of ingest: framing, schema, envelope, fields, key and bucket; then the row that it
    replaces, and other records of the key that are not committed yet. By the definition of the table, or that
    of the configuration before there is a table. The exit code is 1 for a bad record. Changes nothing.

    Example: `thermocline try profiles --from profiles/0@17`
    """
    settings = session_of(context).settings()
    with orderly_end():
        document, code = _tried(settings, name, _place(record))
    show(document, _text(document), as_json)
    return code


def _tried(settings: Settings, name: str, place: Place) -> tuple[dict[str, Any], int]:
    from thermocline.kafka.log import Log
    from thermocline.rules.decode import decoder_for
    from thermocline.rules.decode.steps import key_of, steps_of

    live = _live(settings, name)
    definition = live.definition
    ends = _checked_ends(Log(settings.kafka), definition, place)
    chunk = _read(settings, place)
    parts = (chunk.keys[0], chunk.values[0], chunk.headers_of, chunk.topic)
    registry = settings.registry.client()
    steps = steps_of(definition, registry, *parts)
    decoded = decoder_for(definition, registry).decode(
        chunk.keys, chunk.values, chunk.headers_of, chunk.topic
    )
    document: dict[str, Any] = {
        "table": name,
        "definition": live.origin,
        "record": _described(chunk),
        "bad": bool(decoded.bad),
        "filtered": bool(decoded.filtered),
        "steps": [_step(one) for one in steps],
    }
    if decoded.bad:
        document |= {"stage": str(decoded.bad[0].stage), "reason": decoded.bad[0].reason}
    key = key_of(definition, decoded)
    if live.state is not None and key is not None:
        from thermocline.cli.try_replaced import replaced

        document["replaces"] = replaced(settings, definition, live.state, key, place, ends)
    return document, ExitCode.BAD_ANSWER if decoded.bad else ExitCode.DONE


@dataclass(frozen=True, slots=True)
class _Live:
    """The definition that counts, where it is from, and the table's snapshot, if there is a table."""

    definition: LiveTable
    origin: str
    state: SnapshotState | None = None


def _live(settings: Settings, name: str) -> _Live:
    from thermocline.iceberg.catalog import current_state, definition_of, find_table, open_catalog
    from thermocline.iceberg.catalog_properties import sqlite_path

    configured = settings.table(name)
    sqlite = sqlite_path(settings.catalog.uri)
    table = None
    if sqlite is None or Path(sqlite).exists():
        table = find_table(open_catalog(settings.catalog), configured.identifier)
    if table is None:
        return _Live(configured.definition(name), "the configuration: there is no table yet")
    return _Live(definition_of(table, name), "the table", current_state(table, name))


def _place(text: str) -> Place:
    try:
        (((topic, partition), offset),) = parse_read_after(text).items()
    except (BadParameter, ValueError) as error:
        raise BadParameter(name=_OPTION, problem=f'"{text}" is not TOPIC/PARTITION@OFFSET') from error
    return topic, partition, offset


def _checked_ends(log: Any, definition: LiveTable, place: Place) -> Seam:
    """The log's ends, once it may have the record. Raises `BadParameter` and `OffsetsGone`."""
    topic, partition, offset = place
    if topic not in definition.topics:
        problem = f"the table is not fed from topic {topic}; its topics are {', '.join(definition.topics)}"
        raise BadParameter(name=_OPTION, problem=problem)
    starts, ends = log.bounds(definition.topics)
    if (topic, partition) not in ends:
        count = sum(of == topic for of, _, _ in ends.items())
        problem = f"topic {topic} has no partition {partition}; there are {count}, numbered from 0"
        raise BadParameter(name=_OPTION, problem=problem)
    end, start = ends.get((topic, partition)), starts.get((topic, partition))
    if offset >= end:
        problem = f"{topic}/{partition} ends at offset {end:,}: the record is not there yet"
        raise BadParameter(name=_OPTION, problem=problem)
    if offset < start:
        raise OffsetsGone(table="", gaps=(f"{topic}/{partition}@{offset}-{start}",))
    return ends  # type: ignore[no-any-return]


def _read(settings: Settings, place: Place) -> RecordChunk:
    """The record alone. Raises `BadParameter` where the offset has none."""
    from thermocline.kafka.facts import OffsetRange
    from thermocline.kafka.log import read_ranges

    topic, partition, offset = place
    wanted = [OffsetRange(topic, partition, offset, offset + 1)]
    for chunk in read_ranges(settings.kafka.client_config(), wanted):
        if chunk.offsets:
            return chunk
    problem = f"{topic}/{partition}@{offset} holds no record: compaction took it, or it ends a transaction"
    raise BadParameter(name=_OPTION, problem=problem)


def _described(chunk: RecordChunk) -> dict[str, Any]:
    from thermocline.rules.headers import HeadersUnreadable

    try:
        headers: Any = [{"name": name, "value": _bytes(value)} for name, value in chunk.headers_of(0) or ()]
    except HeadersUnreadable as error:
        headers = str(error)
    at = datetime.fromtimestamp(max(chunk.timestamps_ms[0], 0) / 1000, UTC)
    return {
        "record": f"{chunk.topic}/{chunk.partition}@{chunk.offsets[0]}",
        "timestamp": at.isoformat(timespec="milliseconds"),
        "key": _bytes(chunk.keys[0]),
        "value": _bytes(chunk.values[0]),
        "headers": headers,
    }


def _step(step: Step) -> dict[str, Any]:
    found = {"step": step.name, "before": _plain(step.before), "after": _plain(step.after)}
    return found | ({"problem": step.problem} if step.problem else {})


def _plain(value: Any) -> Any:
    """For JSON; bytes as text where they are text."""
    match value:
        case bytes():
            return _bytes(value)
        case Mapping():
            return {str(name): _plain(part) for name, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
    return json_form(value)


def _bytes(value: bytes | None) -> dict[str, str] | None:
    """As text where it is text, else as hexadecimal digits, by which framing can be seen."""
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}
    return {"text": text} if text.isprintable() or "\x00" not in text else {"hex": value.hex()}


def _text(document: Mapping[str, Any]) -> Group:
    record = document["record"]
    lines = [
        Text(f"{record['record']} of {record['timestamp']}, by the definition of {document['definition']}"),
        *_labelled("key", record["key"]),
        *_labelled("value", record["value"]),
    ]
    lines += [
        line for header in _list(record["headers"]) for line in _labelled(header["name"], header["value"])
    ]
    for step in document["steps"]:
        lines.append(Text(step["step"], style="bold"))
        for name, value in (("before", step["before"]), ("after", step["after"])):
            if value:
                lines += [line for part, one in value.items() for line in _labelled(f"{name} {part}", one)]
        if "problem" in step:
            lines += _labelled("problem", step["problem"])
    if "replaces" in document:
        from thermocline.cli.try_replaced import words_of

        lines.append(Text("replaces", style="bold"))
        lines += [
            Text(f"  {words}") for words in words_of(document["replaces"], record["record"], document["bad"])
        ]
    lines.append(_verdict(document))
    return Group(*lines)


def _verdict(document: Mapping[str, Any]) -> Text:
    if document["filtered"]:
        return Text("filtered: it is not the table's, by where")
    if not document["bad"]:
        return Text("good")
    hint = command(f"table show {document['table']}")
    return Text(f"bad: {document['stage']}: {document['reason']}\nnext: {hint}", style="yellow")


def _list(headers: Any) -> Sequence[Mapping[str, Any]]:
    return headers if isinstance(headers, list) else [{"name": "headers", "value": headers}]


def _labelled(label: str, value: Any) -> Iterator[Text]:
    match value:
        case {"text": str(text)} if len(value) == 1:
            shown = text
        case {"hex": str(text)} if len(value) == 1:
            shown = f"0x{text}"
        case str():
            shown = value
        case _:
            shown = json_text(value)
    yield Text(f"  {label:<{_WIDTH}} {shortened(shown)}")
