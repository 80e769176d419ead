"""``thermocline quarantine``: list a table's bad records, replay or delete them."""

from __future__ import annotations

import base64
import heapq
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from thermocline.cli.output import confirmed, counted, say, show, table
from thermocline.cli.publishing import publish_once
from thermocline.cli.session import AsJson, TableName, session_of
from thermocline.errors import BadParameter, ExitCode
from thermocline.rules.read_point import parse_read_after
from thermocline.rules.stage import Stage
from thermocline.text.typed import command

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.ingest.replay.replay import Replayed
    from thermocline.settings import Settings

LIST_MAX: Final = 100_000  # what a terminal's or a program's reader takes in one document
_REASON_CHARACTERS: Final = 200  # of a reason, in a line for people

Place = tuple[str, int, int]
Row = Mapping[str, Any]
Records = Annotated[
    list[str] | None, typer.Argument(metavar="TOPIC/PARTITION@OFFSET", help="Only these records.")
]

app = typer.Typer(help="Inspect, replay and delete a table's bad records.", no_args_is_help=True)


@app.command("list")
def list_records(
    context: typer.Context,
    name: TableName,
    stage: Annotated[Stage | None, typer.Option(help="Only this stage of decoding.")] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only reasons that contain TEXT.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only records since TIME (ISO 8601 with time zone).")
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=LIST_MAX, help="Maximum number of records, newest first.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """List quarantined records, newest first.

    Also shows counts per stage.
    """
    settings = session_of(context).settings()
    quarantine = _opened(settings, name)
    wanted = _Filter(stage, reason, topic, _time("--since", since) if since else None)
    from thermocline.ingest.quarantine import read_rows

    counts: Counter[str] = Counter()

    def counting() -> Iterator[Row]:
        for row in read_rows(quarantine, ("timestamp", "stage", "reason", "key")):
            if wanted(row):
                counts[row["stage"]] += 1
                yield row

    newest = heapq.nlargest(limit, counting(), key=lambda row: (row["timestamp"], _record(row)))
    document = {
        "table": name,
        "records": counts.total(),
        "by_stage": dict(sorted(counts.items())),
        "newest": [_listed(row) | {"key": _bytes(row["key"])} for row in newest],
    }
    rows = [
        (
            _record(row),
            _iso(row["timestamp"]),
            _short(str(_told(_bytes(row["key"])))),
            row["stage"],
            _short(row["reason"]),
        )
        for row in newest
    ]
    by_stage = ", ".join(f"{count:,} {at}" for at, count in sorted(counts.items()))
    words = Text(f"{counted(counts.total(), 'record')} in quarantine" + (f": {by_stage}" if by_stage else ""))
    text = Group(table(("record", "time", "key", "stage", "reason"), rows), words) if rows else words
    show(document, text, as_json)


@app.command("show")
def show_record(
    context: typer.Context,
    name: TableName,
    record: Annotated[str, typer.Argument(metavar="TOPIC/PARTITION@OFFSET")],
    as_json: AsJson = False,
) -> None:
    """Show one quarantined record: reason, key, value and headers."""
    settings = session_of(context).settings()
    quarantine = _opened(settings, name)
    (place,) = _places([record])
    from thermocline.ingest.quarantine import read_rows
    from thermocline.ingest.replay.quarantined import check_quarantined, places_filter

    check_quarantined(quarantine, name, [place])
    columns = ("timestamp", "stage", "reason", "key", "value", "headers")
    found = [row for row in read_rows(quarantine, columns, places_filter([place])) if _place(row) == place]
    documents = [_shown(row) for row in found]
    facts = [
        table(("", _record(row)), [(name, _told(value)) for name, value in document.items()])
        for row, document in zip(found, documents, strict=True)
    ]
    show({"table": name, "records": documents}, Group(*facts), as_json)


@app.command()
def replay(
    context: typer.Context,
    name: TableName,
    records: Records = None,
    everything: Annotated[bool, typer.Option("--all", help="All quarantined records.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the result without changing anything.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Apply quarantined records that are valid now.

    The result is as if the record had been valid when it was first read: it never overwrites newer data, and
    never brings back a deleted row. If the log can't tell, the record stays in quarantine, with the reason.
    """
    session = session_of(context)
    settings = session.settings()
    wanted = _chosen(records, everything)
    settings.table(name)
    session.configure_logs("warning")
    from thermocline.ingest.replay import replay as replaying
    from thermocline.process.clock import SystemClock

    with _progress() as progress:
        done = replaying.replay(
            settings, name, wanted, SystemClock(), is_dry_run=dry_run, say=say, progress=progress
        )
    if not dry_run:
        publish_once(settings, name)
    _report(name, done, dry_run, as_json)
    return done.exit_code


@app.command()
def purge(
    context: typer.Context,
    name: TableName,
    records: Records = None,
    before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Records older than TIME (ISO 8601 with time zone).")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All quarantined records.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    as_json: AsJson = False,
) -> int:
    """Delete records from quarantine.

    Their bytes stay in older snapshots until maintenance expires those and deletes their files.
    """
    session = session_of(context)
    settings = session.settings()
    if (before is not None) + everything + bool(records) != 1:
        raise BadParameter(name="purge", problem="give records, or --before, or --all: one of them")
    moment = _time("--before", before) if before else None
    places = None if everything or moment else set(_places(records or []))
    quarantine = _opened(settings, name)
    session.configure_logs("warning")
    from thermocline.ingest.replay.quarantined import check_quarantined
    from thermocline.ingest.replay.quarantined import purge as purge_now
    from thermocline.process.clock import SystemClock

    if places is not None:
        check_quarantined(quarantine, name, sorted(places))
    choice = ["--before", before] if before else ["--all"] if everything else records or []
    wanted = partial(_is_to_go, places, moment)
    chosen = wanted if yes else _confirmed(name, quarantine, wanted, choice)
    count = purge_now(settings, name, chosen, SystemClock(), say) if chosen else 0
    if not count:
        words, code = "nothing was purged", ExitCode.NOTHING_TO_DO
    else:
        words, code = f"{counted(count, 'record')} purged", ExitCode.DONE
    show({"table": name, "purged": count, "exit_code": code}, Text(f"{name}: {words}"), as_json)
    return code


def _is_to_go(places: Collection[Place] | None, before: datetime | None, row: Row) -> bool:
    if before is not None:
        return bool(row["timestamp"] < before)
    return places is None or _place(row) in places


@dataclass(frozen=True, slots=True)
class _Filter:
    """What a listing asks for; None asks for nothing."""

    stage: Stage | None
    reason: str | None
    topic: str | None
    since: datetime | None

    def __call__(self, row: Row) -> bool:
        return (
            self.stage in (None, row["stage"])
            and self.topic in (None, row["topic"])
            and (self.reason is None or self.reason.lower() in row["reason"].lower())
            and (self.since is None or row["timestamp"] >= self.since)
        )


def _opened(settings: Settings, name: str) -> Table:
    from thermocline.iceberg.catalog import open_catalog
    from thermocline.ingest.quarantine import open_quarantine

    return open_quarantine(open_catalog(settings.catalog), name, settings.table(name).identifier)


def _chosen(records: Sequence[str] | None, everything: bool) -> list[Place] | None:
    if everything == bool(records):
        raise BadParameter(name="replay", problem="give records, or --all: one of them")
    return None if everything else _places(records or [])


def _places(records: Sequence[str]) -> list[Place]:
    places: list[Place] = []
    for record in records:
        try:
            (((topic, partition), offset),) = parse_read_after(record).items()
        except (BadParameter, ValueError) as error:
            problem = "is not of the form TOPIC/PARTITION@OFFSET"
            raise BadParameter(name=record, problem=problem) from error
        places.append((topic, partition, offset))
    return places


def _time(option: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadParameter(name=option, problem=f'"{text}" is not an ISO 8601 time') from None
    if moment.tzinfo is None:
        raise BadParameter(name=option, problem=f'the time "{text}" needs a zone, such as {text}Z')
    return moment


def _confirmed(
    name: str, quarantine: Table, wanted: Callable[[Row], bool], choice: Sequence[str]
) -> Callable[[Row], bool] | None:
    """The records that the user agreed to delete; None if there are none, or the answer was no.

    No others: ingest may put more there meanwhile. Raises `NotConfirmed` where there is nobody.
    """
    from thermocline.ingest.quarantine import SeenRecords, read_rows

    seen = SeenRecords()
    for row in read_rows(quarantine, ("timestamp",)):
        if wanted(row):
            seen.add(*_coordinates(row))
    goes = f"{counted(len(seen), 'record')} of the quarantine of {name}"
    again = command(f"quarantine purge {name} {shlex.join(choice)} --yes")
    if not len(seen) or not confirmed(f"{goes} will be gone for good. Go on?", goes, again):
        return None
    return lambda row: _coordinates(row) in seen  # safety: purge-counted


def _report(name: str, done: Replayed, is_dry_run: bool, as_json: bool) -> None:
    counts = {outcome.value: count for outcome, count in sorted(done.counts.items())}
    listed = [
        {"record": str(origin), "outcome": verdict.outcome.value, "why": verdict.why}
        for origin, verdict in done.records
    ]
    document = {
        "table": name,
        "dry_run": is_dry_run,
        "counts": counts,
        "records": listed,
        "snapshot_ids": [str(snapshot_id) for snapshot_id in done.snapshot_ids],
        "exit_code": done.exit_code,
    }
    summed = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items())
    words = Text(f"{name}: {summed}" + (" (dry run: nothing was changed)" if is_dry_run else ""))
    if not counts:
        words = Text(f"{name}: nothing to do: the quarantine is empty")
    rows = [(one["record"], one["outcome"], _short(one["why"])) for one in listed]
    text = Group(table(("record", "outcome", "why"), rows), words) if rows else words
    show(document, text, as_json)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Shows on a terminal's stderr how much of the log was read."""
    console = Console(stderr=True)
    columns = (TextColumn("reading the log"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("log", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _place(row: Row) -> Place:
    return (row["topic"], row["partition"], row["offset"])


def _coordinates(row: Row) -> tuple[str, int, int]:
    """What tells a record from all others, of a topic of the same name too."""
    return (row["topic_id"], row["partition"], row["offset"])


def _record(row: Row) -> str:
    return f"{row['topic']}/{row['partition']}@{row['offset']}"


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON_CHARACTERS else f"{line[:_REASON_CHARACTERS]}…"


def _listed(row: Row) -> dict[str, Any]:
    return {
        "record": _record(row),
        "topic": row["topic"],
        "topic_id": row["topic_id"],
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": _iso(row["timestamp"]),
        "stage": row["stage"],
        "reason": row["reason"],
    }


def _shown(row: Row) -> dict[str, Any]:
    headers = [{"name": one["name"], "value": _bytes(one["value"])} for one in row["headers"] or ()]
    return _listed(row) | {"key": _bytes(row["key"]), "value": _bytes(row["value"]), "headers": headers}


def _bytes(value: bytes | None) -> dict[str, str] | None:
    """As text where it is text, else in base64."""
    if value is None:
        return None
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _told(value: object) -> object:
    match value:
        case {"text": str(text)}:
            return text
        case {"base64": str(text)}:
            return f"{text}  (base64)"
        case list():
            return "\n".join(f"{header['name']}: {_told(header['value'])}" for header in value)
        case None:
            return Text("null", style="dim")
        case _:
            return str(value)
