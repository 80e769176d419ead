"""``thermocline topic``: create the topics that tables read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from thermocline.cli.output import counted, show
from thermocline.cli.session import AsJson, session_of
from thermocline.errors import BadParameter, ConfigInvalid, ExitCode
from thermocline.text.typed import command

if TYPE_CHECKING:
    from thermocline.kafka.topics import PlannedTopic
    from thermocline.settings import Settings

PARTITIONS_MAX: Final = 10_000  # a mistyped number would keep a cluster busy
REPLICATION_MAX: Final = 100
_DAY_MS: Final = 24 * 60 * 60 * 1000

app = typer.Typer(help="Create the topics that tables read.", no_args_is_help=True)


@app.callback()
def topic() -> None:
    """The one command stays one of a group."""


@app.command()
def create(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Topic names. Default: all topics of the configured tables."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=PARTITIONS_MAX,
            help="Number of partitions. Default: 6. With more later, keys change their partition.",
        ),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=REPLICATION_MAX,
            help="Replicas of each partition. Default: 3, or the number of brokers if there are fewer.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="Also set this of the topic. Repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be set, without setting it.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Create topics on the Kafka cluster of the configuration.

    By default, records are kept for 7 days (cleanup.policy=delete), and timestamps are those of the broker
    (LogAppendTime). Topics that exist are not changed. Exit code 10: all of them exist.
    """
    settings = session_of(context).settings()
    wanted = tuple(dict.fromkeys(map(topic_name, names))) if names else tuple(topics_of(settings))
    if not wanted:
        raise ConfigInvalid(of="[tables]", problems=("no table is configured; name a topic",))
    own = dict(map(_assignment, config or ()))
    from thermocline.kafka.topics import TopicAdmin
    from thermocline.process.clock import SystemClock

    admin = TopicAdmin(settings.kafka, SystemClock())
    planned = admin.plan(wanted, partitions, replication, own)
    admin.create(planned, only_check=dry_run)
    code = ExitCode.NOTHING_TO_DO if all(one.exists for one in planned) else ExitCode.DONE
    documents = [
        {
            "topic": one.name,
            "outcome": _outcome(one, dry_run),
            "partitions": one.partitions,
            "replication": one.replicas,
            "config": dict(one.config),
        }
        for one in planned
    ]
    document = {
        "bootstrap_servers": settings.kafka.bootstrap_servers,
        "topics": documents,
        "exit_code": code,
    }
    text = "\n".join([*_lines(planned, dry_run), *_next(settings, planned, dry_run)])
    show(document, Text(text), as_json)
    return code


def topics_of(settings: Settings) -> dict[str, None]:
    """The topics that the configured tables read, and those of their dead letters."""
    return dict.fromkeys(
        topic
        for table in settings.tables.values()
        for topic in (*table.topic_names, table.dead_letter_topic)
        if topic
    )


def topic_name(name: str, option: str = "TOPIC") -> str:
    """The name, if it can be a topic's. Raises `BadParameter`."""
    from thermocline.rules.topic_patterns import TOPIC_NAME

    if not TOPIC_NAME.fullmatch(name):
        problem = f'"{name}" is not a topic name: letters, digits, ".", "_" and "-", at most 249 of them'
        raise BadParameter(name=option, problem=problem)
    return name


def _assignment(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise BadParameter(
            name="--config", problem=f'"{text}" is not NAME=VALUE, such as retention.ms=86400000'
        )
    return name, value


def _outcome(topic: PlannedTopic, dry_run: bool) -> str:
    if topic.exists:
        return "exists"
    return "would be created" if dry_run else "created"


def _lines(planned: Sequence[PlannedTopic], dry_run: bool) -> Iterator[str]:
    for one in planned:
        if one.exists:
            yield f"{one.name} exists, with {counted(one.partitions, 'partition')}; nothing was changed"
            continue
        yield f"{one.name} {'would be' if dry_run else 'was'} created with"
        facts = {"partitions": f"{one.partitions:,}", "replication": str(one.replicas)}
        facts |= {name: _described(name, value) for name, value in one.config.items()}
        width = max(map(len, facts))
        yield from (f"  {name:<{width}}  {value}" for name, value in facts.items())


def _described(name: str, value: str) -> str:
    is_days = name.endswith(".ms") and value.isdecimal() and int(value) and int(value) % _DAY_MS == 0
    return f"{value} ({int(value) // _DAY_MS:,} days)" if is_days else value


def _next(settings: Settings, planned: Sequence[PlannedTopic], dry_run: bool) -> Iterator[str]:
    """What to do with the topics: the tables that read them."""
    if dry_run:
        return
    created = {one.name for one in planned if not one.exists}
    for name, table in settings.tables.items():
        if created.intersection(table.topics):
            yield f"next: {command(f'table create {name}')}"
