"""Keys that a batch met in several partitions: what is said of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from thermocline.process.logs import fields
from thermocline.rules.keys import named_columns

if TYPE_CHECKING:
    from thermocline.ingest.batch.batch import BatchResult
    from thermocline.rules.definition import LiveTable

__all__ = ["contested", "warn_of_contested_keys"]

_GREW: Final = (
    "nothing, if the topic has just gained partitions and its producers had flushed before; if this goes on, "
    "its producers choose partitions in different ways: give them all the same partitioner"
)
_TOPICS: Final = (
    "two topics of the table have the same keys: give each topic a table, or add a column to the key that "
    "tells them apart"
)
_DOCS: Final = '; or order the records by a column (sequence_by). See docs/architecture/records.md, "Order"'

_logger = logging.getLogger(__name__)


def contested(result: BatchResult) -> bool:
    """Whether a key was met in several partitions."""
    return any(done.keys_in_several_partitions for done in result.buckets)


def warn_of_contested_keys(definition: LiveTable, result: BatchResult) -> None:
    """Log how many keys there are, an example and its partitions, and what there is to do."""
    examples = ((done.conflict_example, done.conflict_places) for done in result.buckets)
    example, places = next(((key, places) for key, places in examples if key is not None), (None, ()))
    if example is None:
        return
    is_one_topic = len({topic for topic, _ in places}) == 1
    _logger.warning(
        "keys in several partitions",
        extra=fields(
            table=definition.name,
            keys=sum(done.keys_in_several_partitions for done in result.buckets),
            example=named_columns(definition, example),
            partitions=", ".join(f"{topic}/{partition}" for topic, partition in places),
            advice=(_GREW if is_one_topic else _TOPICS) + _DOCS,  # no command: `next` would leave it out
        ),
    )
