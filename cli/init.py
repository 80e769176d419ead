"""``thermocline init``: look at a topic, propose a definition, and write the configuration for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group
from rich.text import Text

from thermocline.cli.init_asked import (
    answer,
    chosen_topic,
    client_settings,
    confirm,
    is_asking,
    variable,
)
from thermocline.cli.init_file import (
    Connections,
    add_to_file,
    connections_text,
    create_file,
    table_text,
    with_section,
)
from thermocline.cli.output import counted, say, show, table
from thermocline.cli.session import AsJson, session_of
from thermocline.errors import BadParameter, ConfigExists, ConfigInvalid, ExitCode, TopicUnrecognised
from thermocline.text.typed import again, command

if TYPE_CHECKING:
    from thermocline.kafka.sampling import Sample
    from thermocline.rules.decode.framing import SchemaId
    from thermocline.rules.decode.schema_documents import WriterSchema
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.recognise import Proposal, Reading
    from thermocline.schemas.registry import SchemaRegistry
    from thermocline.settings import Settings

BROKERS: Final = "127.0.0.1:9092"
CATALOG: Final = "sqlite:///data/catalog.db"
WAREHOUSE: Final = "data/warehouse"
RECORDS: Final = 1_000
RECORDS_MAX: Final = 100_000  # all of a sample is in memory
_BROKERS_VARIABLE: Final = "THERMOCLINE_KAFKA__BOOTSTRAP_SERVERS"
_REGISTRY_VARIABLE: Final = "THERMOCLINE_REGISTRY__URL"
# What is meant where nobody says it: address and warehouse; None where somebody must.
_PLACES: Final[Mapping[str, tuple[str | None, str]]] = {
    "sql": (CATALOG, WAREHOUSE),
    "rest": (None, ""),
    "hive": (None, ""),
    "glue": ("", ""),
}
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]+")


def init(  # noqa: PLR0913, PLR0917  (a command has as many options)
    context: typer.Context,
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="The topic to look at.")] = None,
    brokers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,...", help="Kafka brokers. Default: asked for.")
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A setting of Kafka's client, such as security.protocol=SASL_SSL. Repeatable. Secrets only "
            "as variables: 'sasl.password=${KAFKA_PASSWORD}'.",
        ),
    ] = None,
    registry: Annotated[
        str | None, typer.Option(metavar="URL", help="Schema registry, if records name their schemas.")
    ] = None,
    registry_user: Annotated[
        str,
        typer.Option(metavar="USER", help="Its user; the password is $THERMOCLINE_REGISTRY__PASSWORD."),
    ] = "",
    catalog_type: Annotated[
        str, typer.Option(metavar="KIND", help="Iceberg catalog: sql, rest, hive or glue.")
    ] = "sql",
    catalog: Annotated[
        str | None, typer.Option(metavar="URI", help=f"Its address. Default of sql: {CATALOG}.")
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE", help=f"Where tables are: a folder or a URI. Default of sql: {WAREHOUSE}."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to call the table. Default: like the topic.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD,FIELD", help="Fields of the value that identify a row, instead of the key."
        ),
    ] = None,
    entity: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,COLUMN", help="The leading key columns that a lookup gives. Default: all."
        ),
    ] = None,
    records: Annotated[
        int, typer.Option(metavar="N", min=1, max=RECORDS_MAX, help="Maximum number of records to look at.")
    ] = RECORDS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be written.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write without asking.")] = False,
    as_json: AsJson = False,
) -> int:
    """Look at a topic, propose a table, and write the configuration.

    Reads the oldest and newest records of the topic, recognises format, envelope, key and types, and says
    what it could not know. Nothing is changed on the broker. To a configuration that exists, it adds the
    table, and changes nothing else. Asks for what no option says; without a terminal, --brokers, --topic and
    --yes are needed.

    Example: `thermocline init --brokers 127.0.0.1:9092 --topic profiles --yes`
    """
    from thermocline.settings import place_of_file

    path = place_of_file(session_of(context).config)
    before = path.read_bytes() if path.exists() else None
    asks = is_asking(yes)
    given = _Given(brokers, client or [], registry, registry_user, catalog_type, catalog, warehouse, asks)
    if before is None:
        plan = _Plan(path, given.connections(), None)
    else:
        given.check_none(path, topic)
        plan = _Plan(path, None, before)
    found = _found(plan, topic, records, _names(key), given)
    named = _named(found, name, entity, asks)
    if entity is not None or asks:
        found = replace(found, proposal=found.proposal.with_known_entity())
    section = table_text(named, found.proposal, found.looked_at)
    _check(found.plan, named, section)
    _show_found(found, named, as_json)
    is_written = not dry_run and confirm(str(path), yes)
    if is_written:
        _write(found.plan, section)
    next_ = command(f"table create {named.name}")
    document = _document(found, named, section, is_written) | {
        "next": next_ if is_written else again("--yes")
    }
    words = f"added [tables.{named.name}] to {path}" if before is not None else f"wrote {path}"
    if is_written:
        text = Text(f"{words}\nnext: {next_}")
    else:
        text = Text(f"{found.plan.text(section)}\nnothing was written")
    show(document, text, as_json)
    return ExitCode.DONE if is_written or dry_run else ExitCode.NOTHING_TO_DO


@dataclass(frozen=True, slots=True)
class _Given:
    """What options say of the connections."""

    brokers: str | None
    client: list[str]
    registry: str | None
    registry_user: str
    catalog_type: str
    catalog: str | None
    warehouse: str | None
    asks: bool

    def connections(self) -> Connections:
        """All connections, as far as they are known before a topic was looked at. Raises `BadParameter`."""
        if self.catalog_type not in _PLACES:
            problem = f'"{self.catalog_type}" is not sql, rest, hive or glue'
            raise BadParameter(name="--catalog-type", problem=problem)
        client = client_settings(self.client)
        if self.brokers is None and variable(_BROKERS_VARIABLE):
            brokers = ""
        else:
            usual = BROKERS if self.asks else None
            brokers = answer("--brokers", self.brokers, "Kafka brokers", usual, self.asks)
        registry = "" if variable(_REGISTRY_VARIABLE) and self.registry is None else self.registry or ""
        place, files = _PLACES[self.catalog_type]
        return Connections(
            brokers,
            client,
            registry,
            self.registry_user,
            answer("--catalog", self.catalog, "Iceberg catalog", place, self.asks),
            self.catalog_type,
            answer("--warehouse", self.warehouse, "Warehouse", files, self.asks),
        )

    def check_none(self, path: Path, topic: str | None) -> None:
        """Raises `ConfigExists` where the file has what options say, or nobody asked for a table in it."""
        options = {
            "--brokers": self.brokers,
            "--client": self.client,
            "--registry": self.registry,
            "--registry-user": self.registry_user,
            "--catalog-type": self.catalog_type if self.catalog_type != "sql" else "",
            "--catalog": self.catalog,
            "--warehouse": self.warehouse,
        }
        said = [option for option, value in options.items() if value]
        add = command("init --topic TOPIC      (adds a table to it)")
        if said:
            detail = f"it says where everything is, so {', '.join(said)} can't be given"
            raise ConfigExists(path=str(path), detail=detail, command=add)
        if topic is None and not self.asks:
            raise ConfigExists(path=str(path), detail="it is not written over", command=add)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The file: where it is, and the connections of a new one, or what is in one that is there."""

    path: Path
    connections: Connections | None
    before: bytes | None

    def settings(self, section: str = "") -> Settings:
        """The settings that it has, or would have with a section of a table. Raises `ConfigInvalid`."""
        from thermocline.settings import settings_in

        return settings_in(self.whole(section), self.path)

    def whole(self, section: str) -> str:
        """All of the file's text, with a section of a table."""
        if self.connections is not None:
            return f"{connections_text(self.connections)}\n{section}"
        try:
            return with_section(self.before or b"", section).decode()
        except UnicodeDecodeError as error:
            problem = f"it is not UTF-8 text (byte {error.start:,})"
            raise ConfigInvalid(of=str(self.path), problems=(problem,)) from None

    def text(self, section: str) -> str:
        """What would be written."""
        return self.whole(section) if self.connections is not None else section


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found in a topic."""

    plan: _Plan
    sample: Sample
    schemas: Mapping[SchemaId, WriterSchema]
    proposal: Proposal

    @property
    def looked_at(self) -> str:
        """In words."""
        topic, count = self.sample.topic.name, len(self.sample.records)
        if not count:
            return f"the registry's schemas of the topic {topic}, which is empty"
        return f"{count:,} of {counted(self.sample.log_records, 'record')} of the topic {topic}"


def _found(plan: _Plan, topic: str | None, records_max: int, key: Sequence[str], given: _Given) -> _Found:
    """Looks at the topic, and asks for a registry where its records need one. Raises `TopicUnrecognised`."""
    from thermocline.kafka.sampling import sampled
    from thermocline.kafka.topics import TopicAdmin
    from thermocline.process.clock import SystemClock
    from thermocline.rules.recognise import Unrecognised

    settings = plan.settings()
    say(f"{settings.kafka.bootstrap_servers}: asking for its topics")
    chosen = chosen_topic(topic, TopicAdmin(settings.kafka, SystemClock()).partitions(), given.asks)
    sample = sampled(settings.kafka, chosen, records_max)
    say(f"{chosen}: {len(sample.records):,} of {counted(sample.log_records, 'record')} looked at")
    plan, registry = _with_registry(plan, sample, settings, given)
    schemas: dict[SchemaId, WriterSchema] = {}
    try:
        proposal = _proposal(sample, registry, schemas, key)
    except Unrecognised as error:
        remedy = _registry_remedy(plan) if error.needs_registry else error.remedy
        raise TopicUnrecognised(topic=chosen, detail=str(error), remedy=remedy) from error
    return _Found(plan, sample, schemas, proposal)


def _registry_remedy(plan: _Plan) -> str:
    if plan.connections is not None:
        return again("--registry", "URL")
    return f"set url in [registry] of {plan.path}, and repeat this"


def _with_registry(
    plan: _Plan, sample: Sample, settings: Settings, given: _Given
) -> tuple[_Plan, SchemaRegistry | None]:
    """The registry; asked for at a terminal if the records seem to need one, or there are none."""
    from thermocline.rules.recognise import seem_to_name_schemas

    registry = settings.registry.client()
    is_needed = not sample.records or seem_to_name_schemas(sample.records)
    if registry is not None or plan.connections is None or not is_needed or not given.asks:
        return plan, registry
    why = "The records name schemas" if sample.records else "The topic is empty"
    url = answer(
        "--registry", given.registry, f"{why}: URL of the schema registry, if there is one", "", True
    )
    plan = replace(plan, connections=replace(plan.connections, registry=url))
    return plan, plan.settings().registry.client()


def _proposal(
    sample: Sample,
    registry: SchemaRegistry | None,
    schemas: dict[SchemaId, WriterSchema],
    key: Sequence[str],
) -> Proposal:
    """The definition for the sample; fills in the schemas that it needs."""
    from thermocline.rules.recognise import proposed, proposed_by_schemas, wanted_schemas

    if sample.records or registry is None:
        if registry is not None:
            schemas.update((id_, registry.of(id_)) for id_ in wanted_schemas(sample.records))
        return proposed(sample.topic, sample.records, schemas, key)
    ids = [registry.latest(f"{sample.topic.name}-{part}") for part in ("key", "value")]
    schemas.update((id_, registry.of(id_)) for id_ in ids if id_ is not None)
    return proposed_by_schemas(sample.topic, ids[0], ids[1], schemas, key)


def _named(found: _Found, name: str | None, entity: str | None, asks: bool) -> LiveTable:
    """The definition, under a name. Raises `BadParameter`, and `ConfigInvalid` for an entity that is none."""
    from thermocline.settings.load import TABLE_NAME

    topic = found.sample.topic.name
    usual = _OTHER.sub("_", topic.rpartition(".")[2] or topic).strip("_-")[:64] or "records"
    called = answer("--name", name, "Name of the table", usual, asks)
    if TABLE_NAME.fullmatch(called) is None:
        problem = f'"{called}" is no name of a table: it has letters, digits, _ and - only, and at most 64'
        raise BadParameter(name="--name", problem=problem)
    tables = found.plan.settings().tables
    if called in tables:
        detail = f"it has a table {called} already"
        again_ = again("--name", f"{called}_2")
        raise ConfigExists(path=str(found.plan.path), detail=detail, command=again_)
    columns = found.proposal.key
    if entity is None and len(columns) > 1:
        entity = answer("--entity", None, "Leading key columns that a lookup gives", ",".join(columns), asks)
    return found.proposal.definition(called, f"app.{called.replace('-', '_')}", _names(entity))


def _check(plan: _Plan, definition: LiveTable, section: str) -> None:
    """Makes sure that the table is read back as it was proposed. Raises `ConfigInvalid`."""
    settings = plan.settings(section)
    read = settings.table(definition.name).definition(definition.name)
    if read.to_json() != definition.to_json():
        problem = f"[tables.{definition.name}] would not be read as it was proposed"
        raise ConfigInvalid(of=str(plan.path), problems=(problem,))


def _write(plan: _Plan, section: str) -> None:
    if plan.before is None:
        create_file(plan.path, plan.whole(section))
    else:
        add_to_file(plan.path, plan.before, section)


def _reading(found: _Found, definition: LiveTable) -> Reading:
    from thermocline.rules.recognise import read_by

    return read_by(definition, found.sample.records, found.schemas)


def _show_found(found: _Found, definition: LiveTable, as_json: bool) -> None:
    """What was recognised, for people, before they are asked."""
    if as_json:
        return
    rows = [
        (column.name, column.type, "key" if column.name in found.proposal.key else "", column.evidence)
        for column in found.proposal.columns
    ]
    parts: list[Any] = [Text(f"{label:<8} {said}") for label, said in found.proposal.findings]
    parts += [Text(), table(("column", "type", "", "evidence"), rows), Text()]
    parts += [Text(f"left out: {one.name}: {one.why}") for one in found.proposal.left_out]
    parts += map(Text, _read_words(found, _reading(found, definition)))
    parts.append(Text("What the records don't tell:"))
    parts += [Text(f"  - {sentence}") for sentence in found.proposal.unknown]
    show(None, Group(*parts, Text()), as_json=False)


def _read_words(found: _Found, reading: Reading) -> Iterable[str]:
    if not reading.records:
        return
    good = reading.records - reading.bad
    yield f"read by it: {good:,} of {reading.records:,} records, {reading.deletes:,} of them deletes"
    for index, reason in reading.reasons:
        yield f"  bad: {_place(found, index)}: {reason}"


def _place(found: _Found, index: int) -> str:
    record = found.sample.records[index]
    return f"{found.sample.topic.name}/{record.partition}@{record.offset}"


def _document(found: _Found, definition: LiveTable, section: str, is_written: bool) -> dict[str, Any]:
    proposal, reading = found.proposal, _reading(found, definition)
    return {
        "path": str(found.plan.path),
        "written": is_written,
        "table": definition.name,
        "topic": found.sample.topic.name,
        "records": {
            "looked_at": reading.records,
            "in_log": found.sample.log_records,
            "read": reading.records - reading.bad,
            "deletes": reading.deletes,
            "bad": reading.bad,
            "reasons": [{"record": _place(found, index), "reason": why} for index, why in reading.reasons],
        },
        "findings": dict(proposal.findings),
        "key": list(proposal.key),
        "columns": [
            {
                "name": one.name,
                "type": one.type,
                "path": list(one.path),
                "evidence": one.evidence,
                "notes": list(one.notes),
                "comment": one.comment,
            }
            for one in proposal.columns
        ],
        "left_out": [{"name": one.name, "why": one.why} for one in proposal.left_out],
        "unknown": list(proposal.unknown),
        "text": found.plan.text(section),
    }


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
