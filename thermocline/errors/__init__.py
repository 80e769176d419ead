"""Every error that a person or a program can meet, each with a stable code, an exit code and an HTTP status.

    ThermoclineError
    ├── ConfigurationError           something must be written differently before a command can work
    │   ├── ConfigFileMissing        no configuration file where it was looked for
    │   ├── ConfigInvalid            the configuration has problems, all of them listed
    │   ├── DefinitionDiffers        the file says something else than the table's own definition
    │   ├── AlterationRefused        the table cannot become what the file says
    │   ├── ConfirmationMissing      nobody confirmed what destroys something
    │   ├── PurgeRefused             a dropped table's files cannot be deleted with it
    │   ├── PortTaken                another process listens there
    │   ├── StateDirUnusable         the server's state folder can't be written, or is in use
    │   └── DependencyMissing        a program or package is not installed
    ├── SourceError                  Kafka
    │   ├── KafkaUnreachable         no broker answered
    │   ├── TopicMissing             the topic does not exist
    │   ├── OffsetsGone              the log was cut beyond what was still needed
    │   ├── SeamBeyondLog            the log ends before what was already read from it
    │   ├── ClusterReplaced          the cluster is not the one that the table was fed from
    │   ├── TopicReplaced            the topic was deleted and created again
    │   ├── PartitionsShrunk         a partition that was read does not exist any more
    │   ├── TombstonesGone           compaction may have dropped tombstones that were not read
    │   ├── TransactionOpen          a producer's open transaction holds back what follows it
    │   ├── FactsDiffer              what a user accepts is not what is found
    │   ├── RebaseRefused            a table without a key cannot go on with another log
    │   ├── RangeIncomplete          a planned range could not be read to its end
    │   ├── BadRecord                a record that the table's definition refuses, where on_error = "fail"
    │   ├── TooManyBadRecords        a batch has more bad records than the table bears
    │   └── DeadLetterRefused        the dead-letter topic will never take a record
    ├── TableError                   Iceberg, its catalog, and who commits
    │   ├── CatalogUnreachable       the catalog did not answer
    │   ├── TableMissing             the catalog has no such table
    │   ├── TableExists              the catalog has such a table already
    │   ├── ForeignSnapshot             the current snapshot was not written by Thermocline
    │   ├── CommitRejected           certain: the commit did not land
    │   ├── CommitUnknown            the commit may or may not have landed
    │   ├── OwnerLost                another process owns the table now
    │   ├── TableHeld                another process holds the table, and lives
    │   ├── StorageFailed            a disk or a store failed under the table
    │   └── EngineFailed             a Spark job failed
    ├── RequestError                 the caller's request, or an answer that cannot be given now
    │   ├── UnknownTable             the server has no such table
    │   ├── BadParameter             a parameter cannot be used
    │   ├── NoKey                    a lookup in a table without a key
    │   ├── RowNotFound              no row has that key
    │   ├── NotQuarantined           the quarantine holds no such record
    │   ├── RouteNotFound            nothing at that path
    │   ├── MethodNotAllowed         the path is there, but not for that method
    │   ├── NotAcceptable            none of the formats asked for is offered
    │   ├── ReadAfterTimeout         the records asked for had not been read in time
    │   ├── NotReady                 the server has not read far enough yet
    │   ├── ReadPointGone            a read point that can no longer be read
    │   ├── HotBytesExceeded         more is uncommitted than may be held
    │   └── ServerUnreachable        no server answers at the URL
    ├── QueryError                   Trino, which answers queries on the views
    │   ├── TrinoUnreachable         Trino did not answer
    │   ├── TrinoRefused             Trino answered with an error
    │   ├── ViewContended            somebody else replaced a view at the same moment
    │   ├── ViewForeign              the name of a view is taken by something that is not ours
    │   └── ViewsLate                the log may drop what the table has not read yet
    ├── VerdictBad                   the demo found a wrong answer
    └── InternalError                a bug of ours

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
