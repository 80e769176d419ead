"""``thermocline audit``: find somebody in the server's audit log."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from thermocline.cli.output import show
from thermocline.cli.read import parse_key
from thermocline.cli.session import AsJson, TableName, session_of

app = typer.Typer(help="Search the server's audit log.", no_args_is_help=True)


@app.callback()
def audit() -> None:
    """The one command stays one of a group."""


@app.command("hash")
def hash_entity(
    context: typer.Context,
    name: TableName,
    key: Annotated[list[str], typer.Argument(metavar="COLUMN=VALUE...", help="The entity's columns.")],
    as_json: AsJson = False,
) -> None:
    """Print the hash by which the audit log names an entity.

    Uses the key in `audit.hash_key_file`, which must be the server's, and the table's definition in the
    configuration.

    Example: `grep $(thermocline audit hash profiles app_id=7 user_id=u1) data/audit/audit*.jsonl`
    """
    from thermocline.serving.access.entity_hash import EntityHash, hash_key
    from thermocline.serving.read.entity import entity_of

    settings = session_of(context).declared_settings()
    definition = settings.table(name).definition(name)
    entity = entity_of(definition, parse_key(key))
    hashed = EntityHash(hash_key(settings.audit.hash_key_file)).of(definition, entity)
    show({"table": name, "entity": hashed}, Text(hashed), as_json)
