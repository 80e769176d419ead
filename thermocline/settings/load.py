"""Reads the settings from the file and the environment, and says every problem in a plain sentence."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from thermocline.errors import ConfigInvalid, did_you_mean
from thermocline.process.masking import mask_secrets, remember
from thermocline.rules.topic_patterns import problems_of_entries
from thermocline.settings.checks import (
    problems_of_addresses,
    problems_of_client,
    problems_of_exposure,
    problems_of_folders,
    problems_of_places,
    problems_of_tls,
)
from thermocline.settings.environment import (
    FILE_SUFFIX,
    FILE_VARIABLE,
    PREFIX,
    Laid,
    known_beside,
    lay_environment_over,
)
from thermocline.settings.model import TABLE_IN_GROUP, Settings
from thermocline.settings.route import problems_of_routes
from thermocline.settings.stand_ins import substitute
from thermocline.settings.table import TableSettings
from thermocline.settings.unless import put_conditions
from thermocline.settings.value_file import FromFile

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

S = TypeVar("S", bound=BaseModel)

FILE_NAME: Final = "thermocline.toml"
_INIT: Final = "thermocline init      (looks at a topic, and writes the file)"

PASS_THROUGH: Final = (
    ("kafka", "client"),
    ("catalog", "properties"),
    ("spark", "conf"),
    ("serving", "catalog", "reader_properties"),
)
# A table's name stands in URLs, on command lines, and as the name of a folder.
TABLE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
# Once for names and types, once for what sections ask of their parts, and once for what is left of them.
ROUNDS_MAX: Final = 3


def load_settings(path: Path | None = None) -> Settings:
    """The settings of a file, of ``THERMOCLINE_CONFIG``, or of ``./thermocline.toml``, and the environment.

    Relative paths in them are relative to the file's folder.

    Raises:
        ConfigInvalid: with every problem found; also where no file is there.
    """
    file = find_file(path)
    problems: list[str] = []
    settings, laid = _loaded(file, problems)
    return _without_problems(file, settings, laid.without_contents(problems))


def settings_in(text: str, file: Path) -> Settings:
    """The settings that a file would have if this were its text. Raises `ConfigInvalid`."""
    problems: list[str] = []
    settings, laid = _loaded(file, problems, text)
    return _without_problems(file, settings, laid.without_contents(problems))


def check_settings(path: Path | None = None) -> Settings:
    """The same, once this machine can write the folders that they name, and may serve where they say.

    Raises:
        ConfigInvalid: with every problem found; also where no file is there.
    """
    file = find_file(path)
    problems: list[str] = []
    settings, laid = _loaded(file, problems)
    if settings is not None:
        problems += problems_of_exposure(settings.serving)
        problems += problems_of_tls(settings.serving)
        problems += problems_of_folders(settings)
        problems += problems_of_client(settings.kafka)
    return _without_problems(file, settings, laid.without_contents(problems))


def find_file(path: Path | None = None) -> Path:
    """The configuration file that would be read. Raises `ConfigInvalid` where there is none."""
    named, file = _named(path)
    if not file.exists():
        origin = "--config" if path else FILE_VARIABLE if named else "default"
        instead = "" if named else "; run this in the folder that has it, or name it with --config"
        raise ConfigInvalid(of=f"{file} ({origin})", problems=(f"no such file{instead}",), step=_INIT)
    return file


def place_of_file(path: Path | None = None) -> Path:
    """Where the configuration file is, or would be."""
    return _named(path)[1]


def _named(path: Path | None) -> tuple[Path | None, Path]:
    named = path or (Path(os.environ[FILE_VARIABLE]) if os.environ.get(FILE_VARIABLE) else None)
    return named, (named or Path(FILE_NAME)).absolute()


def _without_problems(file: Path, settings: Settings | None, problems: Sequence[str]) -> Settings:
    if problems or settings is None:
        raise ConfigInvalid(of=str(file), problems=tuple(problems))
    remember(settings.secrets())  # safety: secrets-remembered
    return settings


def _loaded(file: Path, problems: list[str], text: str | None = None) -> tuple[Settings | None, Laid]:
    """The settings, every problem of them told; where there is one, what is right of them to look for others.

    ``text`` is that of the file, where it is not to be read.

    None where the file can't be read, or what is right does not make any.
    """
    try:
        read = _read(file) if text is None else _parsed(text, file)
    except ConfigInvalid as error:
        problems += error.problems
        read = None
    tree = {"kafka": {}, "catalog": {}} | (read or {})
    laid = lay_environment_over(tree, file.parent, problems)
    _prepare_pass_through(tree, problems)
    _expand_variables(tree, problems)
    put_conditions(tree, problems)
    for _ in range(ROUNDS_MAX):
        try:
            settings = Settings.model_validate(tree)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
        else:
            declared = settings.tables
            settings = _with_absolute_paths(settings, file.parent).with_directories()
            problems += [
                *problems_of_routes(settings.routes, declared),
                *_problems_of_tables(settings),
                *_problems_of_views(settings),
                *_problems_of_audit(settings),
                *_problems_of_mirror(settings),
                *problems_of_addresses(settings),
                *problems_of_places(settings),
            ]
            return settings, laid
        problems += _problems_of(found, tree, laid.origins, is_file_unread=read is None)
        if read is None:
            break
        for one in found:
            substitute(tree, one["loc"])
    return None, laid


def _read(file: Path) -> dict[str, Any]:
    try:
        return _parsed(file.read_text(encoding="utf-8"), file)
    except UnicodeDecodeError as error:
        problem = f"it is not UTF-8 text (byte {error.start:,})"
    except OSError as error:
        problem = f"it can't be read: {error.strerror}"
    raise ConfigInvalid(of=str(file), problems=(problem,))


def _parsed(text: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigInvalid(of=str(file), problems=(f"it is not TOML: {error}",)) from error


def _prepare_pass_through(tree: dict[str, Any], problems: list[str]) -> None:
    for *sections, name in PASS_THROUGH:
        parent = _section(tree, *sections)
        if isinstance(parent.get(name), dict):
            place = ".".join([*sections, name])
            parent[name] = dict(_flattened(parent[name], place, problems))
    own = _section(tree, "kafka", "client").keys() & {"bootstrap.servers", "bootstrap_servers"}
    problems += [f"kafka.client.{name}: say it as kafka.bootstrap_servers" for name in sorted(own)]


def _expand_variables(tree: dict[str, Any], problems: list[str]) -> None:
    """In all sections but those of tables and routes, whose texts are no addresses and no secrets."""
    for section, node in tree.items():
        if section not in ("tables", "routes"):
            tree[section] = _with_variables(node, section, problems)


def _with_variables(node: Any, place: str, problems: list[str]) -> Any:
    if place in [".".join(one) for one in PASS_THROUGH]:
        return node  # they have theirs already
    match node:
        case dict():
            return {name: _with_variables(one, f"{place}.{name}", problems) for name, one in node.items()}
        case list():
            return [_with_variables(one, place, problems) for one in node]
        case str():
            return _expanded(node, place, problems)
        case _:
            return node


def _flattened(node: Mapping[str, Any], place: str, problems: list[str]) -> Iterator[tuple[str, str]]:
    """Names and values as text. A name with dots that was not quoted is a nest of tables in TOML."""
    for name, value in node.items():
        if isinstance(value, dict):
            nested = _flattened(value, f"{place}.{name}", problems)
            yield from ((f"{name}.{rest}", text) for rest, text in nested)
        elif isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, str):
            yield name, _expanded(value, f"{place}.{name}", problems)
        elif isinstance(value, int | float):
            yield name, str(value)
        else:
            problems.append(f"{place}.{name}: must be text, a number, or true or false")


def _expanded(text: str, place: str, problems: list[str]) -> str:
    """The text with each ``${NAME}`` replaced by that variable; what a file has is no such text."""
    if isinstance(text, FromFile):  # safety: value-file-as-it-is
        return str(text)

    def value_of(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            problems.append(f"{place}: the variable {match[1]} is not set")
        return os.environ.get(match[1], "")

    return re.sub(r"\$\{(\w+)\}", value_of, text)


def _section(tree: Mapping[str, Any], *names: str) -> dict[str, Any]:
    node: Any = tree
    for name in names:
        node = node.get(name, {}) if isinstance(node, dict) else {}
    return node if isinstance(node, dict) else {}


def _problems_of(
    findings: Iterable[ErrorDetails],
    tree: Mapping[str, Any],
    origins: Mapping[tuple[str, ...], str],
    is_file_unread: bool,
) -> Iterator[str]:
    """A sentence each, from pydantic's findings; never with the value, which may be a secret.

    Where the file could not be read, those that variables have by themselves.
    """
    for found in findings:
        place = tuple(str(part) for part in found["loc"])
        variables = [name for at, name in origins.items() if at[: len(place)] == place]
        if is_file_unread and place not in origins and found["type"] != "extra_forbidden":
            continue
        match found["type"]:
            case "extra_forbidden" if variables:
                yield from (_unknown_variable(name, place) for name in variables)
            case "extra_forbidden":
                meant = _meant(place, is_section=bool(_section(tree, *place)))
                yield f"{'.'.join(place)}: unknown name{meant}"
            case "missing":
                yield f"{'.'.join(place)}: is missing"
            case _:
                origin = f" (from {variables[0]})" if variables else ""
                yield f"{'.'.join(place)}: {_plain(found['msg'])}{origin}{_above_columns(place)}"


def _meant(place: tuple[str, ...], *, is_section: bool) -> str:
    """Where a name belongs, or which name of its section is meant."""
    from thermocline.settings.sections import belongs  # noqa: PLC0415  (of Kafka's client, too, and seldom)

    known = known_beside(place)
    if f"{place[-1]}s" in known:  # closer than the same name in another section
        return did_you_mean(place[-1], known)
    return belongs(place, is_section=is_section) or did_you_mean(place[-1], known)


def _above_columns(place: tuple[str, ...]) -> str:
    """For what would be a column, since it stands below the columns, and is a setting of the table."""
    match place:
        case ("tables" | "routes" as kind, table, "columns", name, *_) if name in TableSettings.model_fields:
            return f"; a setting stands in [{kind}.{table}], above [{kind}.{table}.columns]"
    return ""


def _unknown_variable(variable: str, place: tuple[str, ...]) -> str:
    parents = "".join(f"{part}__" for part in place[:-1])
    known = [f"{PREFIX}{parents}{name}".upper() for name in known_beside(place)]
    written = f"{PREFIX}{'__'.join(place)}".upper()
    if variable.upper() == f"{written}{FILE_SUFFIX}":
        written, known = variable.upper(), [f"{one}{FILE_SUFFIX}" for one in known]
    return f"{variable}: unknown variable{did_you_mean(written, known)}"


def _plain(message: str) -> str:
    """Pydantic's "Input should be a valid integer, unable to ..." as the rest of our sentence."""
    message = mask_secrets(message).removeprefix("Value error, ").partition(" or instance of ")[0]
    message = message.replace("Input should be a valid dictionary", "must be a section")
    return message.replace("Input should be", "must be").replace("String should", "must")


def _problems_of_tables(settings: Settings) -> Iterator[str]:
    owners: dict[str, str] = {}
    for name, table in settings.tables.items():
        place = f"routes.{name}" if name in settings.routes else f"tables.{name}"
        if TABLE_NAME.fullmatch(name) is None:
            yield f"{place}: a table's name has letters, digits, _ and - only, and at most 64 of them"
        first = owners.setdefault(table.identifier, place)
        if first != place:
            yield f"{place}: {table.identifier} is the table of {first} already"
        try:
            definition = table.definition(name)
        except ConfigInvalid as error:
            yield from (f"{place}: {problem}" for problem in error.problems)
            continue
        written = [of.dead_letter_topic for of in settings.tables.values()]
        others = sorted({topic for topic in (*written, settings.audit.topic) if topic})
        yield from (f"{place}: {one}" for one in problems_of_entries(table.topics, others))
        if definition.needs_registry and not settings.registry.url:
            yield (
                f"{place}: its records name their schemas: set registry.url, or give value_schema_file "
                "or key_schema_file where all records have one schema"
            )


def _problems_of_views(settings: Settings) -> Iterator[str]:
    has_live_tables = settings.serving.catalog.enabled or settings.views.live_uri is not None
    if settings.views.hot == "server" and not has_live_tables:  # safety: views-need-live-tables
        yield (
            'views.hot: "server" needs the live tables of a server: set serving.catalog.enabled = true, or '
            "views.live_uri where the server has a configuration of its own"
        )


def _problems_of_audit(settings: Settings) -> Iterator[str]:
    topic = settings.audit.topic
    for name, table in settings.tables.items():
        if topic and topic in (*table.topics, table.dead_letter_topic):  # safety: audit-own-topic
            yield f'audit.topic: "{topic}" is a topic of tables.{name} already'


def _problems_of_mirror(settings: Settings) -> Iterator[str]:
    group, tables = settings.ingest.mirror_group, settings.tables
    if group and TABLE_IN_GROUP not in group and len(tables) > 1:  # safety: mirror-group-per-table
        yield (
            f'ingest.mirror_group: "{group}" would be one group for {len(tables)} tables: '
            f'put {TABLE_IN_GROUP} into it, such as "{group}-{TABLE_IN_GROUP}"'
        )


def _with_absolute_paths(settings: Settings, folder: Path) -> Settings:
    catalog = settings.catalog
    changes = {"uri": _absolute_sqlite(catalog.uri, folder)}
    # A REST catalog's warehouse is a name that the server knows.
    if catalog.type in ("sql", "hive") and catalog.warehouse and not urlsplit(catalog.warehouse).scheme:
        changes["warehouse"] = str(folder / catalog.warehouse)
    serving = _with_files(
        settings.serving,
        folder,
        *("state_dir", "extract_jobs_dir", "clients_file", "tls_certificate", "tls_key", "tls_client_ca"),
    )
    registry = _with_files(settings.registry, folder, "ca_file")
    lineage = _with_files(settings.lineage, folder, "ca_file")
    audit = _with_files(settings.audit, folder, "hash_key_file", "path")
    sql = _with_files(settings.sql, folder, "temp_dir")
    tables = {
        name: _with_files(table, folder, "key_schema_file", "value_schema_file")
        for name, table in settings.tables.items()
    }
    routes = {
        name: _with_files(route, folder, "key_schema_file", "value_schema_file")
        for name, route in settings.routes.items()
    }
    parts = {
        "routes": routes,
        "catalog": catalog.model_copy(update=changes),
        "registry": registry,
        "lineage": lineage,
        "serving": serving,
        "audit": audit,
        "sql": sql,
        "tables": tables,
    }
    return settings.model_copy(update=parts)


def _with_files(section: S, folder: Path, *names: str) -> S:
    given = {name: getattr(section, name) for name in names}
    return section.model_copy(
        update={name: folder / path for name, path in given.items() if path is not None}
    )


def _absolute_sqlite(uri: str, folder: Path) -> str:
    scheme, separator, path = uri.partition(":///")
    if not scheme.startswith("sqlite") or not path or path.startswith(":memory:"):
        return uri
    return f"{scheme}{separator}{folder / path}"
