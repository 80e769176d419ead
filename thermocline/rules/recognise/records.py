"""The records of a sample, and what is known of the topic that they are from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["SampledRecord", "Topic", "counted_of"]

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class SampledRecord:
    """One record as the log has it."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """What the log says of a topic by itself.

    ``kept_ms`` is None where no record is deleted for its age. ``is_hidden``: the configuration may not be
    described, so neither is known.
    """

    name: str
    partitions: int = 1
    is_compacted: bool = False
    kept_ms: int | None = None
    is_hidden: bool = False


def counted_of(count: int, total: int) -> str:
    """``7 of 1,000``."""
    return f"{count:,} of {total:,}"


def headers_of(records: Sequence[SampledRecord], index: int) -> Headers:
    """The headers of the record with an index, as decoders ask for them."""
    return records[index].headers
