"""The ways into a table, as a verification needs them; the command makes them of the serving room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from thermocline.rules.read_point import ReadPoint
    from thermocline.rules.seam import Seam

__all__ = ["Extract", "HotReader", "Lookup", "ReadPaths"]

Extract = Callable[[list[str], "BinaryIO"], "ReadPoint"]
"""Writes all rows with those columns as an Arrow stream; where it was read."""
Lookup = Callable[[Mapping[str, str], str], Mapping[str, Any]]
"""An entity's answer as JSON; it includes the records that the second argument names (may be empty)."""


class HotReader(Protocol):
    """The hot tier as of one moment."""

    @property
    def start(self) -> Seam:
        """The first offset held, by partition."""

    @property
    def end(self) -> Seam:
        """The next offset that is not held, by partition."""

    def scan(self, bucket: int, seam: Seam) -> pa.Table:
        """The winners of a bucket at or beyond the seam: key, provenance, tombstone and payload."""


@dataclass(frozen=True, slots=True)
class ReadPaths:
    """What is asked.

    ``hot_problem`` says why the hot tier of a server is not looked at; then ``hot`` is None or a private one.
    """

    extract: Extract
    lookup: Lookup
    hot: HotReader | None
    hot_problem: str = ""
