"""Views beside the commands that change a table: published, or dropped, without ever failing the command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from thermocline.cli.output import say
from thermocline.errors import ThermoclineError
from thermocline.text.typed import command

if TYPE_CHECKING:
    from thermocline.settings import Settings


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
        done = Publication(settings, name, SystemClock())()
        if done.stop is not None:
            raise done.stop


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
