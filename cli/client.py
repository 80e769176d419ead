"""``thermocline client``: who may ask a server, and for what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from thermocline.cli.output import say, show, table
from thermocline.cli.read import parse_key
from thermocline.cli.session import AsJson, TableName, session_of
from thermocline.errors import BadParameter, ConfigInvalid, ExitCode

if TYPE_CHECKING:
    from rich.console import RenderableType

    from thermocline.rules.definition import LiveTable
    from thermocline.serving.access.clients import Client, TableGrant

_PATTERNS: Final = '"events_*" for all whose names begin so, "*" for all others'
_READS_NONE: Final = "none: its verbs read no rows"

app = typer.Typer(help="Say who may ask a server, and for what.", no_args_is_help=True)

ClientName = Annotated[str, typer.Argument(metavar="NAME", help="The client's name.")]
ClientsPath = Annotated[
    Path | None,
    typer.Option("--file", metavar="PATH", help="The clients file. Default: serving.clients_file."),
]


Verbs = Annotated[
    list[str] | None,
    typer.Option(
        "--verb",
        metavar="VERB",
        help="What it may do: lookup, extract, changes, jobs, catalog, admin. Default: lookup, extract.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="COLUMN", help="A column it sees beside the key. Default: all."),
]
Scope = Annotated[
    list[str] | None,
    typer.Option("--scope", metavar="COLUMN=VALUE", help="It sees only the rows with this value."),
]


@app.command()
def create(  # noqa: PLR0913, PLR0917  (a command has as many options)
    context: typer.Context,
    name: ClientName,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="TABLE", help=f"A table that it may read; {_PATTERNS}."),
    ] = None,
    verbs: Verbs = None,
    columns: Columns = None,
    scope: Scope = None,
    expires_days: Annotated[
        int | None, typer.Option(min=1, max=3_650, metavar="N", help="Days until the key expires.")
    ] = None,
    file: ClientsPath = None,
    as_json: AsJson = False,
) -> None:
    """Create a client, or another key of one.

    The key is shown this once, on stdout. Two keys of a client count at a time, so that one can take the
    other's place. Options for tables set what the client may do with these tables; what they don't name stays
    as it is.
    """
    path = _path(context, file)
    if not tables and (verbs or columns or scope):
        raise BadParameter(name="--table", problem="it is missing: grants are for tables")
    from thermocline.serving.access.clients_edit import Granted, add_key

    wanted = parse_key(scope) if scope else None
    granted = [Granted(one, verbs, columns, wanted) for one in tables or ()]
    now = datetime.now(UTC)
    expires = None if expires_days is None else now + timedelta(days=expires_days)
    key = add_key(path, name, granted, expires, now)
    problems = _misfits(context, path, name, tables or ())
    document = {
        "client": name,
        "file": str(path),
        "key": key.text if key else None,
        "id": key and key.id,
        "problems": problems,
    }
    if as_json:
        show(document, "", as_json=True)
        return
    _say_granted(path, name, problems)
    if key is not None:
        say("Its key, which is shown this once and kept nowhere:")
        show(document, key.text, as_json=False)


@app.command()
def grant(  # noqa: PLR0913, PLR0917  (a command has as many options)
    context: typer.Context,
    name: ClientName,
    tables: Annotated[
        list[str],
        typer.Option("--table", metavar="TABLE", help=f"A table to change the grant of; {_PATTERNS}."),
    ],
    verbs: Verbs = None,
    columns: Columns = None,
    scope: Scope = None,
    all_columns: Annotated[bool, typer.Option("--all-columns", help="It sees all columns.")] = False,
    all_rows: Annotated[bool, typer.Option("--all-rows", help="It sees all rows: no scope.")] = False,
    file: ClientsPath = None,
    as_json: AsJson = False,
) -> None:
    """Change what a client may do with tables; its keys stay.

    Each of verbs, columns and scope replaces what the client has, and stays as it is if it is left out.
    """
    path = _path(context, file)
    for option, is_given in (("--all-columns", all_columns and columns), ("--all-rows", all_rows and scope)):
        if is_given:
            raise BadParameter(name=option, problem="it contradicts the option that names some")
    from thermocline.serving.access.clients_edit import Granted, change_grants

    wanted = parse_key(scope) if scope else None
    wanted, seen = {} if all_rows else wanted, [] if all_columns else columns
    change_grants(path, name, [Granted(one, verbs, seen, wanted) for one in tables])
    problems = _misfits(context, path, name, tables)
    if as_json:
        show({"client": name, "file": str(path), "problems": problems}, "", as_json=True)
        return
    _say_granted(path, name, problems)


@app.command("list")
def list_clients(context: typer.Context, file: ClientsPath = None, as_json: AsJson = False) -> None:
    """List clients, how they are known, and what they may do."""
    from thermocline.serving.access.clients import read_clients

    found = read_clients(_path(context, file)).clients
    document = {
        name: {
            "keys": [one.model_dump(mode="json", exclude={"sha256"}) for one in client.keys],
            "certificates": list(client.certificates),
            "issuer": client.issuer,
            "claims": client.claims,
            "tables": {name: _grant_of(client, name) for name in client.tables},
        }
        for name, client in found.items()
    }
    rows = [
        (name, ", ".join(_known_by(name, client)), _tables_shown(client)) for name, client in found.items()
    ]
    show({"clients": document}, table(("client", "known by", "may"), rows), as_json)


@app.command()
def revoke(
    context: typer.Context,
    name: ClientName,
    key_id: Annotated[
        str | None, typer.Argument(metavar="KEY", help="The key's id. Default: all keys of the client.")
    ] = None,
    file: ClientsPath = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a client's keys.

    Servers that run refuse them within three seconds.
    """
    from thermocline.serving.access.clients_edit import revoke_keys

    path = _path(context, file)
    gone = revoke_keys(path, name, key_id)
    show({"client": name, "revoked": gone}, f"{name}: revoked {', '.join(gone)}", as_json)


@app.command()
def check(
    context: typer.Context,
    name: ClientName,
    table_name: TableName,
    file: ClientsPath = None,
    as_json: AsJson = False,
) -> int:
    """Show what a client may do with a table, and why.

    Exit codes: 0 it may do something; 1 it may do nothing, the grant doesn't fit the table, or nobody is
    known by the client's certificates.
    """
    from thermocline.serving.access.clients import read_clients, why_unknown
    from thermocline.serving.read.caller import ANY_TABLE, Action, granted_by

    settings = session_of(context).declared_settings()
    if table_name not in settings.tables:  # it may be a route's
        settings = session_of(context).settings()
    definition = settings.table(table_name).definition(table_name)
    path = _path(context, file)
    client = read_clients(path).clients.get(name)
    if client is None:
        raise BadParameter(name=name, problem=f"there is no such client in {path}")
    key = granted_by(client.tables, table_name)
    why = f'[clients.{name}.tables."{key}"] in {path}'
    if key is None:
        why = f"{path} has no grant of {name} for it: to {name}, it does not exist"
        show({"client": name, "table": table_name, "verbs": [], "why": why}, why, as_json)
        return ExitCode.BAD_ANSWER
    found = client.tables[key]
    columns, misfit = _seen(found, definition)
    problem = misfit or why_unknown(client, settings.serving)
    reads = any(verb.reads_rows for verb in found.verbs)
    may = [verb.allows for verb in found.verbs]
    if key == ANY_TABLE and Action.ADMIN in found.verbs:
        may.append("see metrics, and what is wrong with the server")
    document: dict[str, Any] = {
        "client": name,
        "table": table_name,
        "known_by": list(_known_by(name, client)),
        "verbs": list(found.verbs),
        "may": may,
        "reads_rows": reads,
        "columns": list(columns) if reads else [],
        "scope": dict(found.scope),
        "why": why,
        "problem": problem,
    }
    show(document, _checked(document), as_json)
    return ExitCode.BAD_ANSWER if problem else ExitCode.DONE


def _seen(grant: TableGrant, definition: LiveTable) -> tuple[tuple[str, ...], str | None]:
    """The columns that a grant shows of the table, and why it does not fit it, if so."""
    from thermocline.serving.read.sight import GrantProblem, Sight

    # A scope's value that comes from a token is not known here.
    part = grant.model_copy(update={"scope": _written(grant.scope)}).grant({})
    try:
        sight = Sight.of(definition, part.part) if part else None
    except GrantProblem as error:
        return (), str(error)
    return tuple(column.name for column in sight.definition.columns) if sight else (), None


def _written(scope: dict[str, str]) -> dict[str, str]:
    from thermocline.serving.access.clients import CLAIM

    return {column: text for column, text in scope.items() if not text.startswith(CLAIM)}


def _misfits(context: typer.Context, path: Path, name: str, tables: Sequence[str]) -> dict[str, str]:
    """By table, why a grant gives nothing; nothing where no configuration is here to compare it with."""
    from thermocline.serving.access.clients import read_clients
    from thermocline.serving.read.caller import ANY_TABLE, granted_by

    try:
        settings = session_of(context).settings()
    except ConfigInvalid:  # the file can be made elsewhere
        return {}
    client, problems = read_clients(path).clients[name], {}
    for one in tables:
        if one == ANY_TABLE:
            continue
        granted = [table for table in settings.tables if granted_by(client.tables, table) == one]
        if not granted and not one.endswith(ANY_TABLE):
            problems[one] = f"no such table is configured; configured: {', '.join(settings.tables) or 'none'}"
        for its in granted:
            _, problem = _seen(client.tables[one], settings.table(its).definition(its))
            if problem is not None:
                problems[its] = problem
    return problems


def _say_granted(path: Path, name: str, problems: Mapping[str, str]) -> None:
    from thermocline.serving.access.clients import read_clients

    may = _tables_shown(read_clients(path).clients[name]) or "nothing yet: give --table"
    say(f"{path}: a running server knows within three seconds what {name} may do: {may}")
    for table_name, problem in problems.items():
        say(f"It sees nothing of {table_name}: {problem}")


def _checked(document: dict[str, Any]) -> RenderableType:
    scope = ", ".join(f"{column} = {text}" for column, text in document["scope"].items())
    columns = ", ".join(document["columns"])
    facts = [
        ("table", document["table"]),
        ("known by", ", ".join(document["known_by"]) or "nothing: nobody can be this client"),
        ("verbs", ", ".join(document["verbs"])),
        ("may", "; ".join(document["may"])),
        ("columns", columns if document["reads_rows"] else _READS_NONE),
        ("rows", (scope or "all") if document["reads_rows"] else _READS_NONE),
        ("why", document["why"]),
        *((("problem", document["problem"]),) if document["problem"] else ()),
    ]
    return table(("client", document["client"]), facts)


def _path(context: typer.Context, given: Path | None) -> Path:
    if given is not None:
        return given
    path = session_of(context).declared_settings().serving.clients_file
    if path is None:
        problem = 'serving.clients_file is not set: add clients_file = "clients.toml" to [serving]'
        raise ConfigInvalid(of="for clients", problems=(problem,))
    return path


def _grant_of(client: Client, name: str) -> dict[str, object]:
    grant = client.tables[name]
    return {
        "verbs": list(grant.verbs),
        "columns": grant.columns if grant.columns is None else list(grant.columns),
        "scope": dict(grant.scope),
    }


def _known_by(name: str, client: Client) -> Iterator[str]:
    """How a server tells that it is this client: by ids of keys, names in certificates, claims of tokens."""
    from thermocline.serving.access.clients import ANONYMOUS

    if name == ANONYMOUS:
        yield "no credentials"
    for key in client.keys:
        yield f"key {key.id}" if key.expires is None else f"key {key.id} until {key.expires:%Y-%m-%d}"
    yield from (f"certificate {one}" for one in client.certificates)
    if client.issuer is not None:
        claims = "".join(f", {claim} = {value}" for claim, value in client.claims.items())
        yield f"token of {client.issuer}{claims}"


def _tables_shown(client: Client) -> str:
    return "; ".join(
        f"{name}{_part_shown(one)}: {', '.join(one.verbs)}" for name, one in client.tables.items()
    )


def _part_shown(grant: TableGrant) -> str:
    parts = [f"{column} = {text}" for column, text in grant.scope.items()]
    if grant.columns is not None:
        parts.append(f"columns {', '.join(grant.columns) or 'of the key'}")
    return f" ({'; '.join(parts)})" if parts else ""
