"""Views beside the commands that change a table: published, or dropped, without ever failing the command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from thermocline.cli.output import say
from thermocline.errors import ThermoclineError, TrinoRefused
from thermocline.text.typed import command

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings
    from thermocline.views.publication import Publication
    from thermocline.views.publish import PublishRound

SERVER_FOLLOWS_SECONDS: Final = 30.0
"""A server looks at its tables each second, and reads what is hot again where one was altered."""
LOOK_SECONDS: Final = 1.0


@contextmanager
def published(settings: Settings, name: str) -> Iterator[Callable[[], None]]:
    """Within the block, what to call after each commit; its views are published in a thread of their own.

    Where ``views.enabled`` is not set, calling it does nothing.
    """
    if not settings.views.enabled:
        yield _nothing
        return
    from thermocline.process.clock import SystemClock
    from thermocline.views.publication import Publication
    from thermocline.views.watch import InBackground, PublishWatch

    clock = SystemClock()
    publication = Publication(settings, name, clock)
    interval_seconds = settings.table(name).commit_interval_seconds
    with InBackground(PublishWatch(name, publication, interval_seconds, clock)) as views:
        yield views.wake


def publish_once(settings: Settings, name: str) -> None:
    """After a change of the table; a failure is said with the command that repeats it."""
    if not settings.views.enabled:
        return
    from thermocline.process.clock import SystemClock
    from thermocline.views.publication import Publication

    with _softly(f"its views are older, or withdrawn; next: {command(f'views publish {name}')}"):
        done = _published_as_altered(Publication(settings, name, SystemClock()))
        if done.stop is not None:
            raise done.stop


def _published_as_altered(publication: Publication) -> PublishRound:
    """Published; views of the server's live table once it has the columns that they name."""
    is_served = publication.settings.views.hot == "server"
    clock = publication.clock
    deadline = clock.monotonic() + SERVER_FOLLOWS_SECONDS
    while True:
        try:
            return publication()
        except TrinoRefused:
            if not is_served or clock.monotonic() >= deadline:
                raise
        clock.sleep(LOOK_SECONDS)


def costs_in_trino(settings: Settings, definition: LiveTable) -> Iterator[str]:
    """What Trino can't do with the table as it is to be, in sentences; nothing without published views."""
    if not settings.views.enabled:
        return
    from thermocline.views.check import format_problem
    from thermocline.views.readable import unreadable_in_sql
    from thermocline.views.trino_client import Trino

    because = unreadable_in_sql(definition)
    if because is not None and settings.views.hot != "server":
        yield f"no live view can be made of it: {because}"
    try:
        version = str(Trino(settings.views, table=definition.name).rows("SELECT version()")[0][0])
    except ThermoclineError as error:
        yield f"[{error.code}] Trino was not asked whether it can read the table then"
        return
    if problem := format_problem(definition.format_version, version):
        yield problem


def drop_with_table(settings: Settings, name: str) -> None:
    """After the table went; a failure is said with the command that repeats it."""
    if not settings.views.enabled:
        return
    from thermocline.iceberg.catalog import open_catalog
    from thermocline.views.drop import drop_views
    from thermocline.views.trino_client import Trino

    with _softly(f"its views are left; next: {command(f'views drop {name}')}"):
        drop_views(settings, name, open_catalog(settings.catalog), Trino(settings.views, table=name))


@contextmanager
def _softly(advice: str) -> Iterator[None]:
    try:
        yield
    except ThermoclineError as error:
        say(f"[{error.code}] {error.what} {advice}")


def _nothing() -> None:
    pass
