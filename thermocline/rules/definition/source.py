"""Options that say where a table's records come from."""

from __future__ import annotations

from dataclasses import dataclass, field

from thermocline.rules.definition.option import by_rule, free

__all__ = ["SourceOptions"]


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Where records come from."""

    topics: tuple[str, ...] = field(
        metadata=by_rule(
            "Topics that feed the table. An entry that can't be a topic's name, such as `log\\.\\d{8}`, is a "
            "pattern: a regular expression that the whole names of topics match. Ingest finds such topics "
            "while it runs."
        )
    )
    topic_patterns: tuple[str, ...] = field(default=(), metadata=by_rule("", left_out=True))
    transactional: bool = field(
        default=False,
        metadata=free(
            "Set to true if producers use transactions. Either way, records count only once their transaction"
            " is committed.",
        ),
    )
