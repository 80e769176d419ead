"""Keep a table's views up to date: after each commit, before they end, and without ever holding up ingest."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from thermocline.errors import ExitCode, InternalError, ThermoclineError
from thermocline.process.logs import fields
from thermocline.process.metrics import VIEW_FAILURES, VIEWS_AGE_SECONDS, VIEWS_REPLACED

if TYPE_CHECKING:
    from thermocline.process.clock import Clock
    from thermocline.views.publish import PublishRound

__all__ = ["InBackground", "PublishWatch"]

PAUSE_SECONDS_MAX: Final = 30.0
"""An idle table's views are looked at this often, and replaced when half of their life is over."""
BOUNDED_PAUSE_SECONDS: Final = 2.0
"""Views that end at literal offsets show nothing newer until they are replaced."""
WATCH_SECONDS: Final = 4.0
"""The longest that a process of its own takes for a commit interval: it has to look for commits itself."""
CLOSE_SECONDS: Final = 90.0
"""What the end of ingest leaves its last publication: a statement that Trino must end by itself, and some."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class PublishWatch:
    """Publishes again and again; an error never ends it, and is said once for as long as it stays the same.

    ``publish`` is one publication.
    """

    table: str
    publish: Callable[[], PublishRound]
    commit_interval_seconds: float
    clock: Clock
    _has_ends: bool = False
    _current_since: float = field(init=False)
    _said: str = ""

    def __post_init__(self) -> None:
        self._current_since = self.clock.monotonic()
        # Asked for when it is scraped: it grows while a publication hangs, too.
        VIEWS_AGE_SECONDS.labels(self.table).set_function(
            lambda: self.clock.monotonic() - self._current_since
        )

    def once(self) -> bool:
        """One publication, its failure logged and counted; whether the views are the table's newest now."""
        try:
            done = self.publish()
        except ThermoclineError as error:
            return self._failed(error)
        # safety: views-soft
        except Exception as error:  # noqa: BLE001  a bug in publishing must not end ingest
            return self._failed(InternalError.of(error, "publishing views"))
        self._has_ends = done.has_ends
        if done.replaced:
            VIEWS_REPLACED.labels(self.table).inc(len(done.replaced))
            extra = fields(table=self.table, snapshot_id=done.snapshot_id, views=list(done.replaced))
            _logger.info("views replaced", extra=extra)
        if done.stop is not None:
            return self._failed(done.stop)
        self._current_since, self._said = self.clock.monotonic(), ""
        return True

    def follow(self, woken: threading.Event, stop: threading.Event) -> int:
        """Publishes until ``stop`` is set, whenever ``woken`` is, and at each pause; the exit code."""
        while not stop.is_set():
            woken.clear()  # before the look: a commit during it is looked at next  # safety: views-woken
            self.once()
            woken.wait(self.pause_seconds)
        return ExitCode.DONE

    @property
    def pause_seconds(self) -> float:
        """How long nobody looks where nothing happens: twice a commit interval, or more often."""
        if self._has_ends:
            return BOUNDED_PAUSE_SECONDS
        return min(self.commit_interval_seconds / 2, PAUSE_SECONDS_MAX)

    def _failed(self, error: ThermoclineError) -> bool:
        VIEW_FAILURES.labels(self.table, error.code).inc()
        if error.code != self._said:
            self._said = error.code
            extra = fields(table=self.table, code=error.code, detail=str(error), cause=error.cause)
            _logger.warning("views not published: they are older", extra=extra)
        return False


class InBackground:
    """A watch in a thread of its own, beside ingest; however slow Trino is, ``wake`` returns at once.

    At the end there is one more publication, for the last commit, and for what ended ingest.
    """

    def __init__(self, watch: PublishWatch) -> None:
        self._watch, self._woken, self._stop = watch, threading.Event(), threading.Event()
        # A daemon: where Trino hangs for longer than the last publication may take, ingest still ends.
        self._thread = threading.Thread(target=self._run, name=f"views of {watch.table}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._woken.set()
        self._thread.join(CLOSE_SECONDS)

    def wake(self) -> None:
        """Says that there was a commit. Of several before the next publication only the last is published."""
        self._woken.set()

    def _run(self) -> None:
        self._watch.follow(self._woken, self._stop)
        self._watch.once()
