"""``thermocline table``: create, show and list live tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Group
from rich.text import Text

from thermocline.cli.output import error_document, show, table
from thermocline.cli.session import AsJson, TableName, session_of
from thermocline.errors import TableMissing, TableUnowned

if TYPE_CHECKING:
    from thermocline.catalog import SnapshotState

app = typer.Typer(help="Create, show and list live tables.", no_args_is_help=True)


@app.command()
def create(context: typer.Context, name: TableName, as_json: AsJson = False) -> None:
    """Create the table that the configuration defines; its first, empty snapshot says where to begin."""
    settings = session_of(context).settings()
    identifier = settings.table(name).identifier
    from ingest.create import create_table

    state = create_table(settings, name)
    document = {"table": name, "identifier": identifier, "snapshot": snapshot_document(state)}
    begins = "\n".join(
        f"  {topic}/{partition} from offset {at:,}" for topic, partition, at in state.seam.items()
    )
    text = f"created {identifier}, to be read\n{begins}\nnext: thermocline ingest run {name}"
    show(document, Text(text), as_json)


@app.command("show")
def show_table(context: typer.Context, name: TableName, as_json: AsJson = False) -> None:
    """Show the table's own definition, its newest snapshot and its seam."""
    settings = session_of(context).settings()
    identifier = settings.table(name).identifier
    from thermocline.catalog import current_state, definition_of, load_table, open_catalog

    loaded = load_table(open_catalog(settings.catalog), name, identifier)
    definition = json.loads(definition_of(loaded, name).to_json())
    document: dict[str, Any] = {"table": name, "identifier": identifier, "definition": definition}
    try:
        snapshot = snapshot_document(current_state(loaded, name))
    except TableUnowned as error:  # the command that this error names must show what there is
        snapshot = {"problem": error_document(error)}
    show(document | {"snapshot": snapshot}, _described(document, snapshot), as_json)


@app.command("list")
def list_tables(context: typer.Context, as_json: AsJson = False) -> None:
    """List the configured tables and whether they exist."""
    settings = session_of(context).settings()
    from thermocline.catalog import current_state, load_table, open_catalog

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
        except TableUnowned as error:
            found.append(entry | {"exists": True, "snapshot": {"problem": error_document(error)}})
    rows = [
        (entry["table"], entry["identifier"], ", ".join(entry["topics"]), _presence(entry)) for entry in found
    ]
    show(found, table(("table", "identifier", "topics", "newest snapshot"), rows), as_json)


def snapshot_document(state: SnapshotState) -> dict[str, Any]:
    """A snapshot of ours for JSON output; ids are strings, since JSON readers round long integers."""
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


def _presence(entry: dict[str, Any]) -> str:
    if not entry["exists"]:
        return f"none yet: thermocline table create {entry['table']}"
    if problem := entry["snapshot"].get("problem"):
        return f"[{problem['code']}] {problem['what']}"
    return f"{entry['snapshot']['snapshot_id']} of {entry['snapshot']['committed_at']}"


def _described(document: dict[str, Any], snapshot: dict[str, Any]) -> Group:
    definition = document["definition"]
    columns = [
        (column["name"], _type(column), "key" if column["name"] in definition["key"] else "")
        for column in definition["columns"]
    ]
    choices = [
        (name, ", ".join(value) if isinstance(value, list) else value)
        for name, value in definition.items()
        if name not in ("columns", "identifier")
    ]
    head = Text(f"{document['table']}: {document['identifier']}\n")
    facts = [(name, _fact(value)) for name, value in snapshot.items()]
    parts = (table(("column", "type", ""), columns), table(("definition", ""), choices))
    return Group(
        head, *(part for table_ in parts for part in (table_, Text())), table(("snapshot", ""), facts)
    )


def _type(column: dict[str, str]) -> str:
    return f"{column['type']} (epoch in {column['epoch']})" if column.get("epoch") else column["type"]


def _fact(value: object) -> object:
    match value:
        case {"code": code, "what": what}:
            return f"[{code}] {what}"
        case dict():
            return json.dumps(value)
        case _:
            return value
