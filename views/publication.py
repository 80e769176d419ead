"""Publishing with the real parts, opened when first needed: one that is unavailable holds up nobody."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from thermocline.errors import ThermoclineError, first_line
from thermocline.iceberg.catalog import open_catalog
from thermocline.kafka.log import Log
from thermocline.process.logs import fields
from thermocline.views.orphaned_metadata import remove_leftovers
from thermocline.views.publish import PublishRound, ViewPublisher
from thermocline.views.trino_client import Trino

if TYPE_CHECKING:
    from thermocline.process.clock import Clock
    from thermocline.settings import Settings

__all__ = ["Publication"]

CLEAN_SECONDS: Final = 600.0  # what was replaced is kept for an hour anyway

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Publication:
    """The views of one table, published as often as it is asked for."""

    settings: Settings
    name: str
    clock: Clock
    _publisher: ViewPublisher | None = None
    _cleaned_at: float | None = None
    _views: set[str] = field(default_factory=set)

    def __call__(self) -> PublishRound:
        """One publication, and now and then the leftovers of earlier ones. Raises what the first raises."""
        self._publisher = self._publisher or ViewPublisher(
            self.settings,
            self.name,
            open_catalog(self.settings.catalog),
            Log(self.settings.kafka),
            Trino(self.settings.views, table=self.name),
            self.clock,
        )
        done = self._publisher.publish()
        self._views |= {*done.replaced, *done.kept}
        self._clean(self._publisher)
        return done

    def _clean(self, publisher: ViewPublisher) -> None:
        now = self.clock.monotonic()
        if self._cleaned_at is not None and now - self._cleaned_at < CLEAN_SECONDS:
            return
        namespace = self.settings.table(self.name).identifier.rpartition(".")[0]
        views = sorted(view.removeprefix(f"{namespace}.").lower() for view in self._views)
        self._cleaned_at = now
        try:
            remove_leftovers(publisher.catalog, namespace, views, self.clock.now_ms())
        except (ThermoclineError, OSError) as error:
            # The views are published all the same.
            extra = fields(table=self.name, detail=first_line(error))
            _logger.warning("files of earlier views not deleted: next time", extra=extra)
