"""``thermocline config``: check the configuration, and show it as it is understood."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from thermocline.cli.connections import exit_code, tried
from thermocline.cli.output import show
from thermocline.cli.session import AsJson, session_of

if TYPE_CHECKING:
    from thermocline.settings import Settings

app = typer.Typer(help="Check and show the configuration.", no_args_is_help=True)


@app.command()
def check(
    context: typer.Context,
    connect: Annotated[
        bool,
        typer.Option(
            "--connect",
            help="Also try Kafka, the topics, the registry, the catalog, the tables and the store.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Check the configuration, and report every problem.

    Also checks that its folders are writable from here, and that the clients file can be used. Contacts no
    server, unless --connect is given. That writes one small file into each store of tables, reads and deletes
    it; it answers within half a minute. It also compares the tables with the file, as `table diff` does: a
    difference is named, and is an error if `table alter` refuses it. The exit code is then that of the
    gravest error.
    """
    from thermocline.settings import check_settings, find_file

    config = session_of(context).config
    file = find_file(config)
    settings = check_settings(config)
    tables, notes = sorted(settings.tables), [*_notes_on_new_tables(settings), *_notes_on_clients(settings)]
    document: dict[str, Any] = {"path": str(file), "tables": tables, "problems": [], "notes": notes}
    lines = [f"ok: {file} (tables: {', '.join(tables) or 'none'})", *(f"note: {note}" for note in notes)]
    done = tried(settings) if connect else []
    if connect:
        document["connections"] = [one.to_dict() for one in done]
    show(document, Text("\n").join([*map(Text, lines), *(one.line() for one in done)]), as_json)
    return exit_code(done)


@app.command("show")
def show_settings(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the effective value of every setting. Secrets are masked."""
    document = session_of(context).declared_settings().without_directories().shown()
    show(document, Text("\n".join(_toml(document)).strip()), as_json)


def _notes_on_new_tables(settings: Settings) -> Iterator[str]:
    """What `table create` refuses of the tables: one that is there already can be used all the same."""
    from thermocline.rules.definition import problems_of_new_names

    for name, table in settings.tables.items():
        for problem in problems_of_new_names(table.columns):
            yield f"tables.{name}: {problem}; `table create` refuses it"


def _notes_on_clients(settings: Settings) -> Iterator[str]:
    """What the clients file says without effect. Raises `ConfigInvalid` where a server can't use it."""
    from thermocline.serving.access.clients import read_clients, why_unknown

    path = settings.serving.clients_file
    for name, client in read_clients(path).clients.items() if path is not None else ():
        if (why := why_unknown(client, settings.serving)) is not None:
            yield f"{path}: clients.{name}: {why}"


def _toml(section: Mapping[str, Any], name: str = "") -> Iterator[str]:
    values = {key: value for key, value in section.items() if not _is_section(value, name)}
    if name and (values or not section):
        yield f"\n[{name}]"
    # TOML has no null: what is not set is left out.
    yield from (f"{_key(key)} = {_value(value)}" for key, value in values.items() if value is not None)
    for key, value in section.items():
        if key not in values:
            yield from _toml(value, f"{name}.{_key(key)}".removeprefix("."))


def _is_section(value: object, parent: str) -> bool:
    # A column with an epoch is a table in TOML, too, but reads best on its line.
    return isinstance(value, dict) and not (parent.endswith(".columns") and "type" in value)


def _key(key: str) -> str:
    return key if key.replace("-", "_").isidentifier() else json.dumps(key)


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(part)}" for key, part in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
