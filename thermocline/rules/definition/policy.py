"""Options that say what is done with bad records and with those that change nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from thermocline.rules.definition.option import free
from thermocline.rules.definition.options import OnError

__all__ = ["PolicyOptions"]


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """What is done with bad records, and with those that change nothing."""

    on_error: OnError = field(
        default_factory=OnError,
        metadata=free(
            "What to do with bad records: `quarantine` keeps them in the companion table, `skip` only counts "
            'them, `fail` stops ingest. Give one word for all stages, or one per stage: `{ key = "fail", '
            'contract = "skip" }`. The default for each stage is `quarantine`.',
        ),
    )
    suppress_unchanged: bool = field(
        default=False,
        metadata=free(
            "Write nothing for records that change no value of their row. The row then keeps its older "
            "provenance.",
            needs_key=True,
        ),
    )
