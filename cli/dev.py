"""``thermocline dev``: a Kafka broker on this machine, in the foreground."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from thermocline.cli.output import counted, say
from thermocline.cli.session import AsJson, session_of
from thermocline.cli.topic import topic_name, topics_of
from thermocline.errors import BadParameter, ExitCode, PortTaken
from thermocline.text.typed import again

if TYPE_CHECKING:
    from thermocline.dev.dev import DevBroker, Topic
    from thermocline.settings import Settings

PORT: Final = 9092  # Kafka's usual one, and that of docs/start.md
PARTITIONS_MAX: Final = 1_000  # as many were seen to work in the small memory that the broker gets
HOST_NAMES: Final = ("127.0.0.1", "localhost")


def dev(
    context: typer.Context,
    port: Annotated[
        # Those below are the system's.
        int, typer.Option(metavar="PORT", min=1024, max=65535, help="Port to listen on.")
    ] = PORT,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:PARTITIONS]",
            help="Also create this topic (default: 2 partitions). Repeatable.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            file_okay=False,
            writable=True,
            help="Keep Kafka's data in this folder. Default: a temporary folder, deleted on exit.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run a Kafka broker on this machine, for development.

    Creates the topics of the configured tables, if there is a configuration, and those of --topic. Existing
    topics are not changed. Listens on loopback only. Needs Java.
    """
    settings = session_of(context).settings_if_any()
    configured: dict[str, int | None] = dict.fromkeys(topics_of(settings) if settings else ())
    wanted = configured | dict(map(_parsed, topic or ()))
    from thermocline.dev.dev import dev_broker
    from thermocline.dev.interrupts import as_keyboard_interrupt
    from thermocline.process.clock import SystemClock

    with (
        as_keyboard_interrupt(),
        suppress(KeyboardInterrupt),
        _told_of_port(port),
        dev_broker(port, data, wanted, say) as broker,
    ):
        try:
            if as_json:
                _print_document(broker, data)
            else:
                say("\n".join(_lines(broker, data, settings)))
            broker.watch(SystemClock())
        except KeyboardInterrupt:
            say("stopping the broker")
    return ExitCode.DONE


@contextmanager
def _told_of_port(port: int) -> Iterator[None]:
    """Where Kafka's usual port is taken that nobody asked for, the next step is to take another one."""
    try:
        yield
    except PortTaken as error:
        if port != PORT:
            raise
        step = f"{again('--port', str(PORT + 1))}      (or stop what listens there)"
        raise replace(error, step=step) from None


def _parsed(topic: str) -> tuple[str, int | None]:
    name, colon, count = topic.partition(":")
    topic_name(name, "--topic")
    if not colon:
        return name, None
    if not (count.isascii() and count.isdigit() and 1 <= int(count) <= PARTITIONS_MAX):
        problem = f'"{count}" is not a number of partitions from 1 to {PARTITIONS_MAX:,}'
        raise BadParameter(name="--topic", problem=problem)
    return name, int(count)


def _print_document(broker: DevBroker, data: Path | None) -> None:
    """On one line, and at once: whoever reads it goes on while the broker runs."""
    document = {
        "bootstrap_servers": broker.bootstrap_servers,
        "topics": [
            {"topic": topic.name, "partitions": topic.partitions, "created": topic.is_new}
            for topic in broker.topics
        ],
        "data": str(data.absolute()) if data else None,
        "pid": os.getpid(),
    }
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _lines(broker: DevBroker, data: Path | None, settings: Settings | None) -> Iterator[str]:
    yield f"Kafka is ready at {broker.bootstrap_servers}"
    yield from map(_described, broker.topics)
    if not broker.topics:
        yield "topic   none; name some with --topic, or run it where thermocline.toml is"
    yield f"log     {data}" if data else "log     deleted when it stops; --data PATH keeps it"
    yield f"stop    Ctrl-C, or from another terminal: kill {os.getpid()}"
    configured = settings.kafka.bootstrap_servers if settings else ""
    if configured and not _is_this_broker(configured, broker):
        yield f"note    the configuration names {configured}; to use this Kafka instead:"
        yield f"        export THERMOCLINE_KAFKA__BOOTSTRAP_SERVERS={broker.bootstrap_servers}"


def _described(topic: Topic) -> str:
    partitions = counted(topic.partitions, "partition")
    return f"topic   {topic.name}, {partitions}{'' if topic.is_new else ', there already'}"


def _is_this_broker(configured: str, broker: DevBroker) -> bool:
    port = broker.bootstrap_servers.rpartition(":")[2]
    return any(
        address.strip() in {f"{host}:{port}" for host in HOST_NAMES} for address in configured.split(",")
    )
