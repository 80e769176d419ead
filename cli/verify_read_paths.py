"""The read paths that ``thermocline verify`` looks through: a server's, or those of a reader of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from thermocline.errors import NotReady, RowNotFound, first_line

if TYPE_CHECKING:
    from thermocline.rules.read_point import ReadPoint
    from thermocline.serving.hot.pinned import PinnedHot
    from thermocline.settings import Settings
    from thermocline.verify.read_paths import ReadPaths

# A tailer that runs seals within a second.
_SEAL_WAIT_SECONDS: Final = 5.0
_NONE_HERE: Final = "this machine has none"


@contextmanager
def open_read_paths(settings: Settings, name: str, url: str | None) -> Iterator[ReadPaths]:
    """The read paths of the server at ``url``, or else of a private reader at one read point.

    The hot tier is that of this machine's server, where its state folder holds one, else the private one.
    """
    with ExitStack() as stack:
        hot, problem = _hot_here(settings, name, stack)
        if url is not None:
            yield _of_server(name, url, hot, problem, stack)
        else:
            yield _of_private(settings, name, hot, problem, stack)


def _of_server(name: str, url: str, hot: PinnedHot | None, problem: str, stack: ExitStack) -> ReadPaths:
    from thermocline.cli.server_answers import Client
    from thermocline.serving.read.wanted import Wanted
    from thermocline.verify.read_paths import ReadPaths

    client = stack.enter_context(Client(url))

    def extract(columns: list[str], sink: BinaryIO) -> ReadPoint:
        return client.extract(name, Wanted(columns), "arrow", sink, _no_progress)

    def lookup(parameters: Mapping[str, str], read_after: str) -> Mapping[str, Any]:
        with _no_row() as answer:
            answer.update(client.lookup(name, parameters, read_after or None))
        return answer

    return ReadPaths(extract, lookup, hot, problem)


def _of_private(
    settings: Settings, name: str, hot: PinnedHot | None, problem: str, stack: ExitStack
) -> ReadPaths:
    from thermocline.serving.read import private
    from thermocline.serving.read.wanted import Wanted
    from thermocline.verify.read_paths import ReadPaths

    opened = stack.enter_context(private.opened(settings, name))

    def extract(columns: list[str], sink: BinaryIO) -> ReadPoint:
        return opened.extract(Wanted(columns), "arrow", sink, _no_progress)

    def lookup(parameters: Mapping[str, str], _read_after: str) -> Mapping[str, Any]:
        with _no_row() as answer:
            answer.update(opened.lookup(parameters))
        return answer

    return ReadPaths(extract, lookup, hot or opened.at.hot, "" if problem == _NONE_HERE else problem)


@contextmanager
def _no_row() -> Iterator[dict[str, Any]]:
    """An answer to be filled in; where no row has the key, one without rows."""
    answer: dict[str, Any] = {}
    try:
        yield answer
    except RowNotFound as error:
        answer.update(rows=[], read_point=error.read_point)


def _hot_here(settings: Settings, name: str, stack: ExitStack) -> tuple[PinnedHot | None, str]:
    """The hot tier of a server on this machine, pinned; or why there is none to look at."""
    from thermocline.serving.store.storage import STORAGE_ERRORS

    try:
        return _pinned_here(settings, name, stack)
    except STORAGE_ERRORS as error:  # as where the server runs as another user
        return None, first_line(error)


def _pinned_here(settings: Settings, name: str, stack: ExitStack) -> tuple[PinnedHot | None, str]:
    from thermocline.iceberg.catalog import current_state, definition_of, load_table, open_catalog
    from thermocline.process.clock import SystemClock
    from thermocline.serving.cold.manifest import source_of
    from thermocline.serving.hot.compatibility import incompatibility
    from thermocline.serving.hot.manifest import read_manifest
    from thermocline.serving.hot.pinned import hold
    from thermocline.serving.store.layout import HOT
    from thermocline.serving.tail.follower import PublishedSnapshot

    folder = Path(settings.serving.state_dir) / name / HOT
    if not folder.is_dir() or read_manifest(folder) is None:
        return None, _NONE_HERE
    table = load_table(open_catalog(settings.catalog), name, settings.table(name).identifier)
    definition, state = definition_of(table, name), current_state(table, name)
    try:
        held = hold(folder, name, state.snapshot_id, state.seam, SystemClock(), definition.topics)
        pinned = held.open(_SEAL_WAIT_SECONDS)
    except NotReady as error:
        return None, error.detail
    stack.callback(pinned.close)
    newest = PublishedSnapshot(definition, state, source_of(table, state))
    problem = incompatibility(newest, pinned)
    return (None, problem) if problem is not None else (pinned, "")


def _no_progress(_: int) -> None:
    pass
