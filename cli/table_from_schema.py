"""``thermocline table create --from-schema``: a definition by schemas alone, its section, and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.text import Text

from thermocline.cli.init_asked import confirm
from thermocline.cli.init_file import add_to_file, table_text, with_section
from thermocline.cli.output import show, table
from thermocline.errors import BadParameter, ConfigExists, ConfigInvalid, TopicUnrecognised
from thermocline.text.typed import again, command

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.recognise import DeclaredSchema, Proposal
    from thermocline.schemas.registry import SchemaRegistry
    from thermocline.schemas.sources import NamedSchema
    from thermocline.settings import Settings

__all__ = ["FromSchema", "Proposed", "proposed_table", "written"]

_VALUE: Final = "-value"
_KEY: Final = "-key"
"""Behind a topic's name, as registries call the subjects of its schemas."""
_IN_TOPIC: Final = "a subject is called like its topic, with -value or -key behind"


@dataclass(frozen=True, slots=True)
class FromSchema:
    """What the options of the command say."""

    source: str
    key_source: str | None = None
    key: str | None = None
    entity: str | None = None
    topic: str | None = None
    buckets: int | None = None
    has_one_schema: bool = False


@dataclass(frozen=True, slots=True)
class Proposed:
    """A table that isn't in the file yet: its definition, the text of its section, and where that goes."""

    path: Path
    before: bytes
    section: str
    definition: LiveTable
    proposal: Proposal
    settings: Settings

    def to_dict(self) -> dict[str, Any]:
        """For JSON output."""
        return {
            "path": str(self.path),
            "topic": self.proposal.topic,
            "findings": dict(self.proposal.findings),
            "key": list(self.proposal.key),
            "columns": [
                {
                    "name": one.name,
                    "type": one.type,
                    "evidence": one.evidence,
                    "notes": list(one.notes),
                    "comment": one.comment,
                }
                for one in self.proposal.columns
            ],
            "left_out": [{"name": one.name, "why": one.why} for one in self.proposal.left_out],
            "unknown": list(self.proposal.unknown),
            "text": self.section,
        }


def proposed_table(settings: Settings, path: Path, name: str, given: FromSchema) -> Proposed:
    """The definition that the schemas say, as `init` would propose it for an empty topic. Writes nothing.

    Raises `BadParameter`, `ConfigExists`, `TopicUnrecognised`, and what asking registry and Kafka raises.
    """
    from thermocline.rules.recognise import Unrecognised, proposed_by_declared

    _check_name(settings, path, name)
    registry = settings.registry.client()
    value = _schema(given.source, "--from-schema", registry)
    if given.has_one_schema and value.path is None:  # safety: from-schema-one-in-a-file
        problem = "it is for a schema in a file: records of a registry's schema name it themselves"
        raise BadParameter(name="--one-schema", problem=problem)
    topic = _topic(given, value)
    is_framed = registry is not None and not given.has_one_schema
    key, key_file = _key_schema(given, topic, registry, is_framed)
    try:
        found = proposed_by_declared(
            _facts(settings, topic), key, _declared(value, is_framed), _names(given.key)
        )
    except Unrecognised as error:
        raise TopicUnrecognised(topic=topic, detail=str(error), remedy=error.remedy) from error
    if given.buckets is not None:
        found = replace(found, options={**found.options, "buckets": given.buckets})
    if given.entity is not None:
        found = found.with_known_entity()
    definition = found.definition(name, f"app.{name.replace('-', '_')}", _names(given.entity))
    files = _files(path.parent, {"value_schema_file": value.path, "key_schema_file": key_file})
    section = table_text(definition, found, f"{value.called}, before any record", files)
    before = path.read_bytes()
    return Proposed(path, before, section, definition, found, _read_back(path, before, section, definition))


def written(proposed: Proposed, yes: bool, as_json: bool, dry_run: bool) -> bool:
    """Shows the definition, asks, and adds its section to the file; whether it did."""
    if not as_json:
        _show(proposed)
    if dry_run or not confirm(str(proposed.path), yes):  # safety: from-schema-yes
        return False
    add_to_file(proposed.path, proposed.before, proposed.section)
    return True


def _check_name(settings: Settings, path: Path, name: str) -> None:
    from thermocline.settings.load import TABLE_NAME

    if TABLE_NAME.fullmatch(name) is None:
        problem = f'"{name}" is no name of a table: it has letters, digits, _ and - only, and at most 64'
        raise BadParameter(name="TABLE", problem=problem)
    if name in settings.tables:  # safety: from-schema-keeps-sections
        detail = f"it has a table {name} already, which needs no schema to be created"
        raise ConfigExists(path=str(path), detail=detail, command=command(f"table create {name}"))


def _schema(source: str, option: str, registry: SchemaRegistry | None) -> NamedSchema:
    from thermocline.schemas.sources import NoSuchSchema, schema_named

    try:
        return schema_named(source, registry)
    except NoSuchSchema as error:
        raise BadParameter(name=option, problem=str(error)) from error


def _declared(named: NamedSchema, is_framed: bool) -> DeclaredSchema:
    from thermocline.rules.recognise import DeclaredSchema

    return DeclaredSchema(named.called, named.schema, is_framed or named.path is None, named.docs)


def _topic(given: FromSchema, value: NamedSchema) -> str:
    if given.topic is not None:
        return given.topic
    if value.path is None and given.source.endswith(_VALUE):
        return given.source.removesuffix(_VALUE)
    problem = f"it is needed: {_IN_TOPIC}, and {given.source} doesn't say it"
    raise BadParameter(name="--topic", problem=problem, correction=again("--topic", "TOPIC"))


def _key_schema(
    given: FromSchema, topic: str, registry: SchemaRegistry | None, is_framed: bool
) -> tuple[DeclaredSchema | str | None, Path | None]:
    """The key's schema, or its plain format; None where fields of the value are the key, or there is none."""
    from thermocline.rules.recognise import PLAIN_KEYS

    if given.key is not None and given.key_source is not None:
        raise BadParameter(
            name="--key", problem="the key is in the value, or it has a schema: give one of both"
        )
    if given.key is not None:
        return None, None
    if given.key_source in PLAIN_KEYS:
        return given.key_source, None
    source = given.key_source
    if source is None and registry is not None and registry.latest(f"{topic}{_KEY}") is not None:
        source = f"{topic}{_KEY}"
    if source is None:
        problem = (
            f"what identifies a row is not said: give a schema, or {', '.join(PLAIN_KEYS)}; or --key with "
            "fields of the value, and --key '' if every record adds a row"
        )
        raise BadParameter(name="--key-schema", problem=problem, correction=again("--key-schema", "string"))
    named = _schema(source, "--key-schema", registry)
    return _declared(named, is_framed), named.path


def _facts(settings: Settings, topic: str) -> Any:
    """What Kafka says of the topic. Raises `TopicMissing`."""
    from thermocline.kafka.sampling import topic_facts

    return topic_facts(settings.kafka, topic)


def _files(folder: Path, paths: Mapping[str, Path | None]) -> dict[str, str]:
    """The paths of schema files as the configuration in a folder names them."""
    given = {setting: path.absolute() for setting, path in paths.items() if path is not None}
    near = folder.absolute()
    return {
        setting: str(path.relative_to(near) if path.is_relative_to(near) else path)
        for setting, path in given.items()
    }


def _read_back(path: Path, before: bytes, section: str, definition: LiveTable) -> Settings:
    """The settings that the file has with the section; they must say what was proposed."""
    from thermocline.settings import settings_in

    try:
        settings = settings_in(with_section(before, section).decode(), path)
    except UnicodeDecodeError as error:
        problem = f"it is not UTF-8 text (byte {error.start:,})"
        raise ConfigInvalid(of=str(path), problems=(problem,)) from None
    read = settings.table(definition.name).definition(definition.name)
    if read.to_json() != definition.to_json():  # safety: from-schema-read-back
        problem = f"[tables.{definition.name}] would not be read as it was proposed"
        raise ConfigInvalid(of=str(path), problems=(problem,))
    return settings


def _show(proposed: Proposed) -> None:
    proposal, definition = proposed.proposal, proposed.definition
    rows = [
        (one.name, one.type, "key" if one.name in proposal.key else "", one.evidence)
        for one in proposal.columns
    ]
    layout = f"{definition.buckets} buckets by {definition.bucket_column.name}"
    parts: list[Any] = [Text(f"{label:<10} {said}") for label, said in proposal.findings]
    parts += [Text(f"{'partitions':<10} {layout}"), Text(), table(("column", "type", "", "evidence"), rows)]
    parts += [Text(), Text(f"to be added to {proposed.path}, and then created:"), Text()]
    show(None, Group(*parts, Text(proposed.section)), as_json=False)


def _names(text: str | None) -> Sequence[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
