"""Options that say what is done with bad records, changed schemas, and records that change nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from thermocline.rules.contract.modes import Contract
from thermocline.rules.definition.option import free
from thermocline.rules.definition.options import OnError

__all__ = ["PolicyOptions"]


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """What is done with bad records, changed schemas, and records that change nothing."""

    on_error: OnError = field(
        default_factory=OnError,
        metadata=free(
            "What to do with bad records: `quarantine` keeps them in the companion table, `skip` only counts "
            'them, `fail` stops ingest. Give one word for all stages, or one per stage: `{ key = "fail", '
            'contract = "skip" }`. The default for each stage is `quarantine`.',
        ),
    )
    contract: Contract = field(
        default=Contract(),
        metadata=free(
            "What to do when a writer's schema differs from the table's columns: `ignore`, `evolve`, "
            "`quarantine` or `stop`; or one word for each kind of change, and others for some columns: "
            '`{ new_columns = "evolve", columns = { password = "ignore" } }`. See '
            "[contracts](../formats/contracts.md).",
            left_out=True,
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
