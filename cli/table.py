"""``thermocline table``: create, alter, compare, show, list and drop live tables."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from thermocline.cli.init_asked import is_asking
from thermocline.cli.output import confirmed, counted, error_document, say, show, table
from thermocline.cli.publishing import costs_in_trino, drop_with_table, publish_once
from thermocline.cli.session import AsJson, TableName, session_of
from thermocline.cli.table_from_schema import FromSchema
from thermocline.errors import BadParameter, ExitCode, ForeignSnapshot, NotConfirmed, TableMissing
from thermocline.text.typed import again, command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.ingest.table.drop import Dropped
    from thermocline.rules.alteration import Alteration
    from thermocline.settings import Settings

app = typer.Typer(help="Create, alter, compare, show, list and drop live tables.", no_args_is_help=True)


@app.command()
def create(  # noqa: PLR0913, PLR0917  (a command has as many options)
    context: typer.Context,
    name: TableName,
    from_schema: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Propose the definition by a schema of the values, and add it to the configuration: a file "
            "of Avro, Protobuf (FILE.proto#MESSAGE) or JSON Schema, or a subject of the registry.",
        ),
    ] = None,
    key_schema: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="The keys' schema; or string, int, long or bytes. Default: the subject TOPIC-key.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD,FIELD",
            help="Fields of the value that identify a row, instead of the key. Empty: every record adds one.",
        ),
    ] = None,
    entity: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,COLUMN", help="The leading key columns that a lookup gives. Default: all."
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The topic. Default: that of a subject TOPIC-value.")
    ] = None,
    buckets: Annotated[
        int | None, typer.Option(metavar="N", help="Number of the table's partitions. Default: 16.")
    ] = None,
    one_schema: Annotated[
        bool,
        typer.Option(
            "--one-schema",
            help="Records don't name their schema: the file's is that of all. Default without a registry.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --from-schema: only show what would be made.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --from-schema: make it without asking.")] = False,
    as_json: AsJson = False,
) -> int:
    """Create the table from its configuration, or from a schema.

    Also determines the offsets that ingest starts from. With --from-schema, the configuration gets a section
    [tables.NAME] first, the same that `init` proposes for an empty topic. It is shown, and nothing is written
    without --yes or an answer. The table is partitioned by a hash of the entity's last column (of a table
    without a key, by the log's partition), into --buckets.

    Example: `thermocline table create orders --from-schema orders-value`
    """
    session = session_of(context)
    settings = session.settings()
    given = FromSchema(from_schema or "", key_schema, key, entity, topic, buckets, one_schema)
    if from_schema is None:
        _check_plain(given, dry_run, yes)
        document, text = created_table(settings, name)
        show(document, text, as_json)
        return ExitCode.DONE
    from thermocline.cli.table_from_schema import proposed_table, written
    from thermocline.ingest.table.create import check_creation
    from thermocline.settings import find_file

    proposed = proposed_table(settings, find_file(session.config), name, given)
    check_creation(proposed.settings, name)
    is_written = written(proposed, yes, as_json, dry_run)
    document = proposed.to_dict() | {"written": is_written}
    if not is_written:
        show({"table": name} | document, Text("nothing was written"), as_json)
        return ExitCode.DONE if dry_run else ExitCode.NOTHING_TO_DO
    made, text = created_table(proposed.settings, name)
    show(made | document, Text(f"added [tables.{name}] to {proposed.path}\n{text}"), as_json)
    return ExitCode.DONE


def _check_plain(given: FromSchema, dry_run: bool, yes: bool) -> None:
    """Raises `BadParameter` for options that say nothing without a schema."""
    if given != FromSchema("") or dry_run or yes:
        problem = "the other options say how to propose a table, which is done by --from-schema alone"
        raise BadParameter(name="--from-schema", problem=problem)


def created_table(settings: Settings, name: str) -> tuple[dict[str, Any], Text]:
    """Creates a table that the configuration has; the document and the text that say so."""
    identifier = settings.table(name).identifier
    from thermocline.ingest.table.create import create_table
    from thermocline.ingest.table.sample import warnings_of

    state = create_table(settings, name)
    warnings = warnings_of(settings, settings.table(name).definition(name))
    document = {
        "table": name,
        "identifier": identifier,
        "snapshot": snapshot_document(state),
        "warnings": warnings,
    }
    begins = "\n".join(
        f"  {topic}/{partition} from offset {at:,}" for topic, partition, at in state.seam.items()
    )
    text = f"created {identifier}; ingest will read\n{begins}\nnext: {command(f'ingest run {name}')}"
    for warning in warnings:
        say(warning)
    return document, Text(text)


@app.command()
def alter(
    context: typer.Context,
    name: TableName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")] = False,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            "--drop", metavar="COLUMN", help="Column to drop, or address.zip for a field; the file lacks it."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    as_json: AsJson = False,
) -> int:
    """Apply configuration changes to the table.

    For example new columns, wider types, names, another order, comments, where a column is read from, new
    topics, another number of buckets, format version 3, or on_error. Shows first what changes and what it
    costs, and asks. A column that the file leaves out is dropped only where --drop names it.
    """
    session = session_of(context)
    settings = session.settings()
    settings.table(name)
    from thermocline.ingest.table.alter import alter_table
    from thermocline.process.clock import SystemClock

    planned = alter_table(settings, name, SystemClock(), dry_run=True, drop=drop or ())
    if not planned.changes:
        document = _altered_document(name, planned, (), dry_run)
        show(document, Text(f"{name}: nothing to do: the table already matches the file"), as_json)
        return ExitCode.NOTHING_TO_DO
    costs = alteration_costs(settings, planned)
    document = _altered_document(name, planned, costs, dry_run)
    lines = "\n".join([*(f"  {change}" for change in planned.changes), *(f"  cost: {one}" for one in costs)])
    version = f"version {planned.definition.version} of its definition"
    if dry_run:
        words = "".join(f" --drop {one}" for one in drop or ())
        after = f"next: {command(f'table alter {name}{words}')}"
        show(document, Text(f"{name} would be altered to {version}\n{lines}\n{after}"), as_json)
        return ExitCode.DONE
    if not yes and not _agreed_to(name, planned, lines):  # safety: alter-yes
        show({"table": name, "changes": []}, Text(f"{name}: nothing was altered"), as_json)
        return ExitCode.NOTHING_TO_DO
    alter_table(settings, name, SystemClock(), say=say, agreed=planned, drop=drop or ())
    publish_once(settings, name)
    after = f"running servers follow by themselves; next: {command(f'ingest run {name}')}"
    if planned.files_to_rewrite and not settings.maintenance.enabled:
        after += f"\nand, as [maintenance] is not enabled: {command(f'maintain run {name}')}"
    show(document, Text(f"{name} altered to {version}\n{lines}\n{after}"), as_json)
    return ExitCode.DONE


def alteration_costs(settings: Settings, planned: Alteration) -> tuple[str, ...]:
    """What an alteration costs, in sentences. Asks the catalog, Kafka and, if it has the views, Trino."""
    from thermocline.ingest.table.alter import costs_of

    return (*costs_of(settings, planned), *costs_in_trino(settings, planned.definition))


def _altered_document(name: str, planned: Alteration, costs: Sequence[str], dry_run: bool) -> dict[str, Any]:
    return {
        "table": name,
        "changes": planned.changes,
        "costs": costs,
        "definition_version": planned.definition.version,
        "dry_run": dry_run,
        "field_ids": {column.name: column.field_id for column in planned.added},
        "files_to_rewrite": planned.files_to_rewrite,
    }


@app.command()
def drop(
    context: typer.Context,
    name: TableName,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete the files.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    as_json: AsJson = False,
) -> int:
    """Remove the table and its quarantine from the catalog.

    Files stay, unless --purge is given.
    """
    session = session_of(context)
    settings = session.settings()
    settings.table(name)
    from thermocline.ingest.table.drop import drop_table, plan_drop
    from thermocline.process.clock import SystemClock

    if not yes and not _confirmed(name, plan_drop(settings, name), purge):  # safety: drop-yes
        show({"table": name, "dropped": []}, Text(f"{name}: nothing was dropped"), as_json)
        return ExitCode.NOTHING_TO_DO
    dropped = drop_table(settings, name, purge, SystemClock(), say)
    drop_with_table(settings, name)
    lines = [
        f"dropped {' and '.join(dropped.identifiers)}",
        *(f"  files are left below {at}" for at in dropped.left),
    ]
    if purge and not dropped.left:
        lines.append(f"  and deleted the files below {' and '.join(dropped.locations)}")
    state = settings.serving.state_dir / name
    if state.exists():
        lines.append(f"  a server's copy of what it read is left in {state}; delete it when no server runs")
    show({"table": name, **asdict(dropped)}, Text("\n".join(lines)), as_json)
    return ExitCode.PARTLY_DONE if purge and dropped.left else ExitCode.DONE


@app.command()
def diff(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Table name. Default: every configured table.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show how tables differ from the configuration.

    Compares the definition that each table stores, and its Iceberg schema, with the file. Each difference
    has the command that changes the table, or why none can, and the lines to write into the file. The exit
    code is 0 if nothing differs, and 1 if something does or a table doesn't exist yet. Changes nothing.
    """
    settings = session_of(context).settings()
    from thermocline.cli.table_diff import diff_tables

    names = [*settings.tables] if name is None else [name]
    if name is not None:
        settings.table(name)
    return diff_tables(settings, names, as_json)


@app.command("show")
def show_table(context: typer.Context, name: TableName, as_json: AsJson = False) -> None:
    """Show the table's definition, current snapshot and seam."""
    settings = session_of(context).settings()
    identifier = settings.table(name).identifier
    from thermocline.iceberg.alterations import alterations_of
    from thermocline.iceberg.catalog import ACCEPTED_PROPERTY, current_state, definition_of, open_table
    from thermocline.process.clock import iso_time

    loaded = open_table(settings, name)
    definition = json.loads(definition_of(loaded, name).to_json())
    document: dict[str, Any] = {
        "table": name,
        "identifier": identifier,
        "definition": definition,
        "accepted": json.loads(loaded.properties.get(ACCEPTED_PROPERTY, "[]")),
        "alterations": [
            {
                "version": one.version,
                "at": iso_time(one.at_ms),
                "changes": one.sentences,
                "causes": list(map(asdict, one.causes)),
            }
            for one in alterations_of(loaded.properties)
        ],
    }
    try:
        snapshot = snapshot_document(current_state(loaded, name))
    except ForeignSnapshot as error:  # the command that this error names must show what there is
        snapshot = {"problem": error_document(error)}
    show(document | {"snapshot": snapshot}, _described(document, snapshot), as_json)


@app.command("list")
def list_tables(context: typer.Context, as_json: AsJson = False) -> None:
    """List the configured tables and whether they exist."""
    settings = session_of(context).settings()
    from thermocline.iceberg.catalog import current_state, load_table, open_catalog

    catalog = open_catalog(settings.catalog, may_create=False) if settings.tables else None
    found: list[dict[str, Any]] = []
    for name, configured in settings.tables.items():
        entry: dict[str, Any] = {
            "table": name,
            "identifier": configured.identifier,
            "topics": configured.topics,
        }
        try:
            assert catalog is not None
            state = current_state(load_table(catalog, name, configured.identifier), name)
            found.append(entry | {"exists": True, "snapshot": snapshot_document(state)})
        except TableMissing:
            found.append(entry | {"exists": False, "snapshot": None})
        except ForeignSnapshot as error:
            found.append(entry | {"exists": True, "snapshot": {"problem": error_document(error)}})
    rows = [
        (entry["table"], entry["identifier"], ", ".join(entry["topics"]), _presence(entry)) for entry in found
    ]
    show(found, table(("table", "identifier", "topics", "newest snapshot"), rows), as_json)


def snapshot_document(state: SnapshotState) -> dict[str, Any]:
    """A snapshot with a seam, for JSON output; ids are strings, since JSON readers round long integers."""
    return {
        "snapshot_id": str(state.snapshot_id),
        "committed_at": datetime.fromtimestamp(state.timestamp_ms / 1000, UTC).isoformat(
            timespec="milliseconds"
        ),
        "seam": state.seam.to_dict(),
        "epoch": state.epoch,
        "batch_id": state.batch_id,
        "definition_version": state.definition_version,
        "records": dict(sorted(state.counts.items())),
    }


def _confirmed(name: str, what_goes: Dropped, purge: bool) -> bool:
    goes = " and ".join(what_goes.identifiers)
    if purge:
        goes += f" with the files below {' and '.join(what_goes.locations)}"
    words = f"table drop {name}{' --purge' if purge else ''} --yes"
    return confirmed(f"Drop {goes}?", goes, command(words))


def _agreed_to(name: str, planned: Alteration, lines: str) -> bool:
    """Whether somebody at the terminal says yes. Raises `NotConfirmed` where nobody can."""
    say(lines)
    if not is_asking(yes=False):
        count = counted(len(planned.changes), "change")
        problem = f"{count} of the table {name} would be made, and this was not confirmed"
        raise NotConfirmed(problem=problem, command=again("--yes"))
    return typer.confirm(f"Alter {name} so?", err=True)


def _presence(entry: dict[str, Any]) -> str:
    if not entry["exists"]:
        return f"none yet: {command('table create ' + entry['table'])}"
    if problem := entry["snapshot"].get("problem"):
        return f"[{problem['code']}] {problem['what']}"
    return f"{entry['snapshot']['snapshot_id']} of {entry['snapshot']['committed_at']}"


def _described(document: dict[str, Any], snapshot: dict[str, Any]) -> Group:
    definition = document["definition"]
    columns = [
        (
            column["name"],
            _type(column),
            "key" if column["name"] in definition["key"] else "",
            column.get("comment", ""),
        )
        for column in definition["columns"]
    ]
    has_comments = any(row[-1] for row in columns)
    choices = [
        (name, ", ".join(value) if isinstance(value, list) else _fact(value))
        for name, value in definition.items()
        if name not in ("columns", "identifier", "provenance_id")
    ]
    head = Text(f"{document['table']}: {document['identifier']}\n")
    facts = [(name, _fact(value)) for name, value in snapshot.items()]
    parts = [
        table(("column", "type", "", "comment"), columns)
        if has_comments
        else table(("column", "type", ""), [row[:-1] for row in columns]),
        table(("definition", ""), choices),
        table(("snapshot", ""), facts),
    ]
    if document["accepted"]:
        accepted = [(one["at"], one["code"], ", ".join(one["facts"])) for one in document["accepted"]]
        parts.append(table(("accepted at", "what", "facts"), accepted))
    if document["alterations"]:
        altered = [(one["version"], one["at"], "\n".join(one["changes"])) for one in document["alterations"]]
        parts.append(table(("version", "altered at", "what changed"), altered))
    return Group(head, *(part for table_ in parts for part in (table_, Text())))


def _type(column: dict[str, Any]) -> str:
    epoch, path, header, event = (column.get(name) for name in ("epoch", "path", "header", "event"))
    words = [f"epoch in {epoch}"] if epoch else []
    words += [f"from {'.'.join(path)}"] if path else []
    words += [f"from header {header}"] if header else []
    words += [f"from {'.'.join(event)} of the event"] if event else []
    return f"{column['type']} ({', '.join(words)})" if words else str(column["type"])


def _fact(value: object) -> object:
    match value:
        case {"code": code, "what": what}:
            return f"[{code}] {what}"
        case dict():
            return json.dumps(value)
        case _:
            return value
