"""Every error that a person or a program can meet, each with a stable code, an exit code and an HTTP status.

    ThermoclineError
    ├── ConfigurationError           something must be written differently before a command can work
    │   ├── ConfigFileMissing        no configuration file where it was looked for
    │   ├── ConfigInvalid            the configuration has problems, all of them listed
    │   ├── DefinitionInvalid        a table's columns, key or entity cannot work
    │   ├── DefinitionDiffers        the file says something else than the table's own definition
    │   ├── TableNotConfigured       no [tables.NAME] of that name
    │   ├── PortTaken                another process listens there
    │   └── DependencyMissing        a program or package is not installed
    ├── SourceError                  Kafka
    │   ├── KafkaUnreachable         no broker answered
    │   ├── TopicMissing             the topic does not exist
    │   ├── OffsetsGone              the log was cut beyond what was still needed
    │   ├── SeamBeyondLog            the log ends before what was already read from it
    │   ├── ClusterReplaced          the cluster is not the one that the table was fed from
    │   ├── TopicReplaced            the topic was deleted and created again
    │   ├── RangeIncomplete          a planned range could not be read to its end
    │   └── BadRecord                a record that the table's definition refuses, where on_error = "fail"
    ├── TableError                   Iceberg, its catalog, and who commits
    │   ├── CatalogUnreachable       the catalog did not answer
    │   ├── TableMissing             the catalog has no such table
    │   ├── TableExists              the catalog has such a table already
    │   ├── TableUnowned             the current snapshot was not written by Thermocline
    │   ├── CommitRejected           certain: the commit did not land
    │   ├── CommitUnknown            the commit may or may not have landed
    │   ├── OwnerLost                another process owns the table now
    │   └── EngineFailed             a Spark job failed
    ├── RequestError                 the caller's request, or an answer that cannot be given now
    │   ├── UnknownTable             the server has no such table
    │   ├── UnknownColumn            the table has no such column
    │   ├── BadParameter             a parameter cannot be used
    │   ├── RowNotFound              no row has that key
    │   ├── RouteNotFound            nothing at that path
    │   ├── MethodNotAllowed         the path is there, but not for that method
    │   ├── NotAcceptable            none of the formats asked for is offered
    │   ├── ReadAfterTimeout         the records asked for had not been read in time
    │   ├── NotReady                 the server has not read far enough yet
    │   ├── ReadPointGone            a read point that can no longer be read
    │   ├── HotBytesExceeded         more is uncommitted than may be held
    │   └── ServerUnreachable        no server answers at the URL
    ├── VerdictBad                   the demo's answers differ from its oracle
    └── InternalError                a bug of ours

An error is made from typed facts and words itself: ``what`` happened, the ``state`` the data is in, its
``cause`` and what to do ``next``. The docstring of each class is the page that ``thermocline explain CODE``
prints, and its first line is the title of the HTTP problem. Facts never carry a password.
"""

from __future__ import annotations

from thermocline.errors.configuration import (
    ConfigFileMissing,
    ConfigInvalid,
    ConfigurationError,
    DefinitionDiffers,
    DefinitionInvalid,
    DependencyMissing,
    PortTaken,
    TableNotConfigured,
)
from thermocline.errors.ours import (
    InternalError,
    VerdictBad,
)
from thermocline.errors.request import (
    BadParameter,
    HotBytesExceeded,
    MethodNotAllowed,
    NotAcceptable,
    NotReady,
    ReadAfterTimeout,
    ReadPointGone,
    RequestError,
    RouteNotFound,
    RowNotFound,
    ServerUnreachable,
    UnknownColumn,
    UnknownTable,
)
from thermocline.errors.root import (
    ExitCode,
    ThermoclineError,
    did_you_mean,
)
from thermocline.errors.source import (
    BadRecord,
    ClusterReplaced,
    KafkaUnreachable,
    OffsetsGone,
    RangeIncomplete,
    SeamBeyondLog,
    SourceError,
    TopicMissing,
    TopicReplaced,
)
from thermocline.errors.table import (
    CatalogUnreachable,
    CommitRejected,
    CommitUnknown,
    EngineFailed,
    OwnerLost,
    TableError,
    TableExists,
    TableMissing,
    TableUnowned,
)

__all__ = [
    "BadParameter",
    "BadRecord",
    "CatalogUnreachable",
    "ClusterReplaced",
    "CommitRejected",
    "CommitUnknown",
    "ConfigFileMissing",
    "ConfigInvalid",
    "ConfigurationError",
    "DefinitionDiffers",
    "DefinitionInvalid",
    "DependencyMissing",
    "EngineFailed",
    "ExitCode",
    "HotBytesExceeded",
    "InternalError",
    "KafkaUnreachable",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotReady",
    "OffsetsGone",
    "OwnerLost",
    "PortTaken",
    "RangeIncomplete",
    "ReadAfterTimeout",
    "ReadPointGone",
    "RequestError",
    "RouteNotFound",
    "RowNotFound",
    "SeamBeyondLog",
    "ServerUnreachable",
    "SourceError",
    "TableError",
    "TableExists",
    "TableMissing",
    "TableNotConfigured",
    "TableUnowned",
    "ThermoclineError",
    "TopicMissing",
    "TopicReplaced",
    "UnknownColumn",
    "UnknownTable",
    "VerdictBad",
    "all_errors",
    "did_you_mean",
]


def all_errors() -> dict[str, type[ThermoclineError]]:
    """Every error class that can be raised, by its code, sorted by code."""
    families = ThermoclineError.__subclasses__()
    leaves = [leaf for family in families for leaf in (family.__subclasses__() or [family])]
    return {leaf.code: leaf for leaf in sorted(leaves, key=lambda leaf: leaf.code)}
