"""Options that say where a table's records come from."""

from __future__ import annotations

from dataclasses import dataclass, field

from thermocline.rules.definition.option import by_rule, free

__all__ = ["SourceOptions"]


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Where records come from."""

    topics: tuple[str, ...] = field(metadata=by_rule("Topics that feed the table."))
    transactional: bool = field(
        default=False,
        metadata=free(
            "Set to true if producers use transactions. Either way, records count only once their transaction"
            " is committed.",
        ),
    )
