"""The limits of a server's client, as files have them; `thermocline.serving.access.limits` keeps them."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from thermocline.settings.section import Section
from thermocline.settings.values import Bytes

__all__ = ["EXTRACTS_AT_ONCE_MAX", "REFILL_SECONDS_MAX", "Limits"]

REQUESTS_PER_SECOND_MAX: Final = 1_000_000.0
"""More than any server answers; the cost of a request is whole nanoseconds."""
REFILL_SECONDS_MAX: Final = 86_400
"""Of a burst. A rate so low that it takes longer would be one that nobody can see working."""
EXTRACTS_AT_ONCE_MAX: Final = 64
"""No server streams more: see serving.extracts_max."""


class Limits(Section):
    """How much a client may ask for; what is left out is not limited.

    ``burst``: so many requests at once, if it was quiet before; as many as a second's by default.
    ``bytes_per_minute``: of answers. ``extracts``: that are streamed, or wait for their turn, at once.
    """

    requests_per_second: Annotated[float, Field(gt=0, le=REQUESTS_PER_SECOND_MAX)] | None = None
    burst: Annotated[int, Field(ge=1)] | None = None
    extracts: Annotated[int, Field(ge=1, le=EXTRACTS_AT_ONCE_MAX)] | None = None
    bytes_per_minute: Bytes | None = None

    @model_validator(mode="after")
    def _check_burst(self) -> Self:
        if self.requests_per_second is None:
            if self.burst is not None:
                raise ValueError("burst is of requests_per_second: set that, too")
        elif self.requests_at_once > self.requests_per_second * REFILL_SECONDS_MAX:
            raise ValueError(
                f"at {self.requests_per_second:g} requests per second, {self.requests_at_once} at once would "
                "take more than a day to come back: lower burst, or raise requests_per_second"
            )
        return self

    @property
    def requests_at_once(self) -> int:
        """The burst, where requests are limited."""
        return self.burst or max(1, int(self.requests_per_second or 0))
