"""Every error that a person or a program can meet, each with a stable code, an exit code and an HTTP status.

An error is made from typed facts and words itself: ``what`` happened, the ``state`` the data is in, its
``cause`` and what to do ``next``. The docstring of each class is the page that ``thermocline explain CODE``
prints, and its first line is the title of the HTTP problem. Facts never carry a password.
"""

from __future__ import annotations

from thermocline.errors.configuration import (
    AlterationRefused,
    ConfigFileMissing,
    ConfigInvalid,
    ConfigurationError,
    ConfirmationMissing,
    DefinitionDiffers,
    DependencyMissing,
    PortTaken,
    PurgeRefused,
    StateDirUnusable,
)
from thermocline.errors.ours import (
    InternalError,
    VerdictBad,
)
from thermocline.errors.query import (
    QueryError,
    TrinoRefused,
    TrinoUnreachable,
    ViewContended,
    ViewForeign,
    ViewsLate,
)
from thermocline.errors.request import (
    BadParameter,
    HotBytesExceeded,
    MethodNotAllowed,
    NoKey,
    NotAcceptable,
    NotQuarantined,
    NotReady,
    ReadAfterTimeout,
    ReadPointGone,
    RequestError,
    RouteNotFound,
    RowNotFound,
    ServerUnreachable,
    UnknownTable,
    refusal,
)
from thermocline.errors.root import (
    SAME_COMMAND,
    ExitCode,
    Resumable,
    ThermoclineError,
    did_you_mean,
    first_line,
)
from thermocline.errors.source import (
    BadRecord,
    ClusterReplaced,
    DeadLetterRefused,
    FactsDiffer,
    KafkaUnreachable,
    OffsetsGone,
    PartitionsShrunk,
    RangeIncomplete,
    RebaseRefused,
    SeamBeyondLog,
    SourceError,
    TombstonesGone,
    TooManyBadRecords,
    TopicMissing,
    TopicReplaced,
    TransactionOpen,
)
from thermocline.errors.table import (
    CatalogUnreachable,
    CommitRejected,
    CommitUnknown,
    DefinitionChanged,
    EngineFailed,
    ForeignSnapshot,
    OwnerLost,
    StorageFailed,
    TableError,
    TableExists,
    TableHeld,
    TableMissing,
)

__all__ = [
    "SAME_COMMAND",
    "AlterationRefused",
    "BadParameter",
    "BadRecord",
    "CatalogUnreachable",
    "ClusterReplaced",
    "CommitRejected",
    "CommitUnknown",
    "ConfigFileMissing",
    "ConfigInvalid",
    "ConfigurationError",
    "ConfirmationMissing",
    "DeadLetterRefused",
    "DefinitionChanged",
    "DefinitionDiffers",
    "DependencyMissing",
    "EngineFailed",
    "ExitCode",
    "FactsDiffer",
    "ForeignSnapshot",
    "HotBytesExceeded",
    "InternalError",
    "KafkaUnreachable",
    "MethodNotAllowed",
    "NoKey",
    "NotAcceptable",
    "NotQuarantined",
    "NotReady",
    "OffsetsGone",
    "OwnerLost",
    "PartitionsShrunk",
    "PortTaken",
    "PurgeRefused",
    "QueryError",
    "RangeIncomplete",
    "ReadAfterTimeout",
    "ReadPointGone",
    "RebaseRefused",
    "RequestError",
    "Resumable",
    "RouteNotFound",
    "RowNotFound",
    "SeamBeyondLog",
    "ServerUnreachable",
    "SourceError",
    "StateDirUnusable",
    "StorageFailed",
    "TableError",
    "TableExists",
    "TableHeld",
    "TableMissing",
    "ThermoclineError",
    "TombstonesGone",
    "TooManyBadRecords",
    "TopicMissing",
    "TopicReplaced",
    "TransactionOpen",
    "TrinoRefused",
    "TrinoUnreachable",
    "UnknownTable",
    "VerdictBad",
    "ViewContended",
    "ViewForeign",
    "ViewsLate",
    "all_errors",
    "did_you_mean",
    "first_line",
    "refusal",
]


def all_errors() -> dict[str, type[ThermoclineError]]:
    """Every error class that can be raised, by its code, sorted by code."""
    families = ThermoclineError.__subclasses__()
    leaves = [leaf for family in families for leaf in (family.__subclasses__() or [family])]
    return {leaf.code: leaf for leaf in sorted(leaves, key=lambda leaf: leaf.code)}
