"""Sinks of the audit log: what takes its lines, all of them, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

__all__ = ["Line", "Sink", "SinkFailed"]


class Line(NamedTuple):
    """A line of the log, with its end, and the client that it tells of."""

    client: str | None
    text: bytes


class Sink(Protocol):
    """Takes lines; belongs to one thread."""

    def write(self, lines: Sequence[Line]) -> None:
        """Returns once all lines are where they belong, in this order.

        Called again after an error, it is with the same lines: it then writes what is not there yet.

        Raises OSError, `SinkFailed` or a `ThermoclineError` of the source.
        """

    def close(self) -> None:
        """Lets go of what it holds; what it was not able to write is lost."""


class SinkFailed(Exception):
    """A sink does not take lines, for a reason in plain words without a path."""
