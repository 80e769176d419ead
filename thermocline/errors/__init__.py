"""Every error that a person or a program can meet, each with a stable code, an exit code and an HTTP status.

An error is made from typed facts and words itself: ``what`` happened, the ``state`` the data is in, its
``cause`` and what to do ``next``. The docstring of each class is the page that ``thermocline explain CODE``
prints, and its first line is the title of the HTTP problem. Facts never carry a password.
"""

from __future__ import annotations

from thermocline.errors.audit import AuditUnavailable
from thermocline.errors.configuration import (
    AlterationRefused,
    ConfigExists,
    ConfigInvalid,
    ConfigurationError,
    DefinitionDiffers,
    DependencyMissing,
    NotConfirmed,
    PortTaken,
    PurgeRefused,
    StateDirUnusable,
    TopicUnrecognised,
)
from thermocline.errors.http import BadRequest, TooManyConnections
from thermocline.errors.jobs import (
    ExtractJobsOff,
    ExtractJobUnusable,
    NotFound,
    ServerBusy,
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
from thermocline.errors.records import (
    DeadLetterRefused,
    RangeIncomplete,
    TooManyBadRecords,
    TransactionOpen,
)
from thermocline.errors.request import (
    BadParameter,
    HotBytesExceeded,
    LoadTimeout,
    NotPermitted,
    NotReady,
    ReadAfterTimeout,
    ReadPointGone,
    RequestError,
    RowNotFound,
    ServerUnreachable,
    SqlRefused,
    SqlTooLarge,
    TooManyRequests,
    Unauthenticated,
    UnknownTable,
    refusal,
    unlisted,
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
    KafkaUnreachable,
    LogReplaced,
    OffsetsGone,
    RegistryUnreachable,
    SourceError,
    SourceInvalid,
    TombstonesGone,
    TopicCompacted,
    TopicDeleted,
    TopicForbidden,
    TopicMissing,
    TopicsUnmatched,
)
from thermocline.errors.table import (
    CatalogUnreachable,
    CommitRejected,
    CommitUnknown,
    DefinitionChanged,
    DefinitionNewer,
    EngineFailed,
    ForeignSchema,
    ForeignSnapshot,
    MaintenanceBehind,
    OwnerLost,
    StorageFailed,
    TableError,
    TableExists,
    TableHeld,
    TableMissing,
    TableRestricted,
)

__all__ = [
    "SAME_COMMAND",
    "AlterationRefused",
    "AuditUnavailable",
    "BadParameter",
    "BadRequest",
    "CatalogUnreachable",
    "CommitRejected",
    "CommitUnknown",
    "ConfigExists",
    "ConfigInvalid",
    "ConfigurationError",
    "DeadLetterRefused",
    "DefinitionChanged",
    "DefinitionDiffers",
    "DefinitionNewer",
    "DependencyMissing",
    "EngineFailed",
    "ExitCode",
    "ExtractJobUnusable",
    "ExtractJobsOff",
    "ForeignSchema",
    "ForeignSnapshot",
    "HotBytesExceeded",
    "InternalError",
    "KafkaUnreachable",
    "LoadTimeout",
    "LogReplaced",
    "MaintenanceBehind",
    "NotConfirmed",
    "NotFound",
    "NotPermitted",
    "NotReady",
    "OffsetsGone",
    "OwnerLost",
    "PortTaken",
    "PurgeRefused",
    "QueryError",
    "RangeIncomplete",
    "ReadAfterTimeout",
    "ReadPointGone",
    "RegistryUnreachable",
    "RequestError",
    "Resumable",
    "RowNotFound",
    "ServerBusy",
    "ServerUnreachable",
    "SourceError",
    "SourceInvalid",
    "SqlRefused",
    "SqlTooLarge",
    "StateDirUnusable",
    "StorageFailed",
    "TableError",
    "TableExists",
    "TableHeld",
    "TableMissing",
    "TableRestricted",
    "ThermoclineError",
    "TombstonesGone",
    "TooManyBadRecords",
    "TooManyConnections",
    "TooManyRequests",
    "TopicCompacted",
    "TopicDeleted",
    "TopicForbidden",
    "TopicMissing",
    "TopicUnrecognised",
    "TopicsUnmatched",
    "TransactionOpen",
    "TrinoRefused",
    "TrinoUnreachable",
    "Unauthenticated",
    "UnknownTable",
    "VerdictBad",
    "ViewContended",
    "ViewForeign",
    "ViewsLate",
    "all_errors",
    "did_you_mean",
    "first_line",
    "refusal",
    "unlisted",
]


def all_errors() -> dict[str, type[ThermoclineError]]:
    """Every error class that can be raised, by its code, sorted by code."""
    families = ThermoclineError.__subclasses__()
    leaves = [leaf for family in families for leaf in (family.__subclasses__() or [family])]
    return {leaf.code: leaf for leaf in sorted(leaves, key=lambda leaf: leaf.code)}
