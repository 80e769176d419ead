"""Options that say where a table is, and where its rows are in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from thermocline.rules.definition.option import by_rule, fixed

__all__ = ["LayoutOptions"]


@dataclass(frozen=True, kw_only=True)
class LayoutOptions:
    """Where the table is, and where its rows are in it.

    ``entity`` is a prefix of the key, and as empty as that. ``buckets`` is how many units of work there are.
    ``file_buckets`` is into how many buckets new files are partitioned, in a table whose number was changed:
    a multiple of ``buckets`` while it is being raised, then the same. None: it was never changed.
    """

    identifier: str = field(
        metadata=fixed(
            "it is the table's name in the catalog",
            "`namespace.table` in the catalog.",
        )
    )
    entity: tuple[str, ...] = field(
        metadata=fixed(
            "rows are placed and looked up by it",
            "The leading key columns that a lookup must specify.",
            needs_key=True,
            unset=(),
        )
    )
    buckets: int = field(
        default=16,
        metadata=by_rule(
            "Number of the table's partitions, by a hash of the entity's last column; 1 to 4,096. Can be "
            "altered to a multiple or a divisor."
        ),
    )
    file_buckets: int | None = field(default=None, metadata=by_rule("", left_out=True))
    format_version: int = field(
        default=3,
        metadata=by_rule(
            "Iceberg format version: 3 has deletion vectors; use 2 for engines that can't read them. Can be "
            "altered from 2 to 3, never back; where the file doesn't say it, a table keeps what it has."
        ),
    )

    @property
    def buckets_written(self) -> int:
        """Into how many buckets new files are partitioned: what the configuration calls ``buckets``."""
        return self.file_buckets or self.buckets
