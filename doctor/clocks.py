"""Checks of clocks: ours against those of servers, and against times that lie in the future."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

import httpx
from sqlalchemy import text

from thermocline.doctor.finding import Finding, Outcome, not_looked_at, well
from thermocline.doctor.spans import shown_ms
from thermocline.process.masking import mask_password
from thermocline.rules.identity import MARGIN_MS_MIN

if TYPE_CHECKING:
    from thermocline.doctor.check import Examination
    from thermocline.process.clock import Clock

__all__ = ["Reading", "clocks", "date_of", "skew_of"]

SKEW_MS_MAX: Final = MARGIN_MS_MIN
"""The least margin that is left for clocks to differ, where the time for which tombstones are kept counts."""
DATE_MS: Final = 1_000
"""The header `Date` has whole seconds."""
HTTP_SECONDS: Final = 5.0
FIX: Final = (
    "# on the machine whose clock is wrong, as root; that may be this one\nsudo timedatectl set-ntp true"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Another clock's time, and ours before and after it was asked, in milliseconds.

    ``resolution_ms`` is how coarse it is. ``is_least``: it is no clock but a time that had passed by then, so
    it only proves something where it lies in the future.
    """

    source: str
    theirs_ms: int
    before_ms: int
    after_ms: int
    resolution_ms: int = 0
    is_least: bool = False


def clocks(examination: Examination) -> Sequence[Finding]:
    """Each source that says a time."""
    found = []
    for source, ask in _sources(examination):
        reading = ask(examination.clock)
        found.append(
            not_looked_at("it does not answer, or says no time", source)
            if reading is None
            else skew_of(reading)
        )
    found += [skew_of(one) for one in _newest(examination)]
    return found or (not_looked_at("no source says a time: catalog and store are files of this machine"),)


def skew_of(reading: Reading) -> Finding:
    """By how much the two differ at least, whatever the answer's way took."""
    ahead = reading.theirs_ms - reading.after_ms
    behind = reading.before_ms - (reading.theirs_ms + reading.resolution_ms)
    least = max(ahead, 0 if reading.is_least else behind, 0)
    if least <= SKEW_MS_MAX:
        return well(
            "does not lie in the future" if reading.is_least else f"within {shown_ms(SKEW_MS_MAX)} of ours",
            reading.source,
        )
    direction = "ahead of" if ahead > 0 else "behind"
    return Finding(
        Outcome.PROBLEM,
        f"is {shown_ms(least)} {direction} this machine's clock, or more",
        "ages are wrong by that; with tombstones that are kept for a short time, or a `start` or `--at` that "
        "is a time, a wrong clock is taken for a gap, or hides one",
        FIX,
        reading.source,
    )


def date_of(url: str, clock: Clock) -> Reading | None:
    """By the header ``Date`` of whatever answer comes."""
    before = clock.now_ms()
    try:
        answer = httpx.get(url, timeout=HTTP_SECONDS, verify=False)  # noqa: S501  no secret is sent
        theirs = parsedate_to_datetime(answer.headers["Date"])
    except (httpx.HTTPError, httpx.InvalidURL, KeyError, ValueError):
        return None
    return Reading(mask_password(url), _ms(theirs), before, clock.now_ms(), DATE_MS)


def _sources(examination: Examination) -> Iterator[tuple[str, Callable[[Clock], Reading | None]]]:
    """What can be asked for its time; our own server only tells this machine's."""
    settings = examination.settings
    urls = [
        settings.catalog.uri if settings.catalog.type == "rest" else "",
        settings.catalog.properties.get("s3.endpoint", ""),
        settings.registry.url,
        settings.views.url if settings.views.enabled else "",
    ]
    for url in dict.fromkeys(filter(None, urls)):
        yield mask_password(url), lambda clock, url=url: date_of(url, clock)  # type: ignore[misc]
    catalog: Any = examination.catalog
    if hasattr(catalog, "engine") and catalog.engine.dialect.name == "postgresql":
        yield "the catalog's database", lambda clock: _of_database(catalog, clock)


def _of_database(catalog: Any, clock: Clock) -> Reading:
    with catalog.engine.connect() as connection:
        before = clock.now_ms()
        theirs: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        return Reading("the catalog's database", _ms(theirs), before, clock.now_ms())


def _newest(examination: Examination) -> Iterator[Reading]:
    """The times of the newest snapshots, which the clock of ingest gave."""
    for name, state in examination.states.items():
        now_ms = examination.clock.now_ms()
        yield Reading(f"the newest snapshot of {name}", state.timestamp_ms, now_ms, now_ms, is_least=True)


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)
