"""Errors of the configuration: something must be written differently before a command can work."""

from __future__ import annotations

import errno
from typing import Self

from thermocline.errors.root import ExitCode, Listing, ThermoclineError


class ConfigurationError(ThermoclineError):
    """The configuration or command line must be corrected."""

    http_status = 500
    exit_code = ExitCode.USAGE


class ConfigInvalid(Listing, ConfigurationError):
    """The configuration has problems.

    Thermocline looks for one file, in this order: the --config option, the THERMOCLINE_CONFIG variable, and
    thermocline.toml in the current folder. The first one named is used, and must exist.

    All problems of the file and of the THERMOCLINE_* variables are listed together: unknown names (with the
    closest known one), missing and wrong values, brokers without a port, databases that SQLAlchemy doesn't
    know, and table definitions that can't work. `thermocline config check` also lists folders that this
    machine needs to write to and can't. A variable such as THERMOCLINE_KAFKA__BOOTSTRAP_SERVERS takes
    precedence over the file.

    A table's definition says what a row is: columns and their types, the key, and the entity that services
    look up by. Key columns must be declared, and must be int, long, string, date, uuid or binary. The entity
    is the leading part of the key. Names that begin with "_" are reserved. Names that begin with "$" are
    refused when a table is created or a column is added, since Trino's hidden columns have such names; a
    table that already has such a column is still read and written.

    The broker of `thermocline dev` refuses a topic whose name differs from another one's only in "." and "_",
    which Kafka treats as the same.

    Nothing was read or written. Correct the problems, or pass the path of another file, and run `thermocline
    config check` until it says "ok".
    """

    code = "config-invalid"
    _what = "the configuration {of} has {_problems}"
    _next = "{_step}"

    of: str  # a path, or "of table NAME"
    problems: tuple[str, ...]
    step: str = ""

    @property
    def _step(self) -> str:
        return self.step or "correct the file or the environment, then: thermocline config check"


class ConfigExists(ConfigurationError):
    """There is a configuration already, and it is not written over.

    `thermocline init` writes a configuration where there is none. To one that is there, it only adds the
    table of a topic that is named: everything else in the file stays as it is, to the last byte. Its brokers,
    registry and catalog are used, so options that say other ones are refused, and so is a name that a table
    has already. `table create --from-schema` adds a table in the same way.

    Nothing was changed.
    """

    code = "config-exists"
    http_status = 409
    _what = "{path} exists: {detail}."
    _state = "nothing was changed."
    _next = "{command}"

    path: str
    detail: str
    command: str


class TopicUnrecognised(ConfigurationError):
    """No definition can be proposed for the topic.

    `thermocline init` looks at a topic's oldest and newest records, and proposes a definition that reads
    them. It proposes none where nothing tells what a row is: the topic is empty and no registry has its
    schemas, records name schemas that are not known, keys are of types that no key can have, or values are
    events of a kind that is not read.

    Nothing was written, and nothing was changed on the broker. Do what the error says, or write the
    definition by hand: docs/formats/README.md has an example of each format.
    """

    code = "topic-unrecognised"
    http_status = 409
    _what = "no definition can be proposed for the topic {topic}: {detail}."
    _state = "nothing was written."
    _next = "{remedy}"

    topic: str
    detail: str
    remedy: str


class DefinitionDiffers(Listing, ConfigurationError):
    """The configuration differs from the definition stored in the table.

    `thermocline table create` wrote the definition (topics, format, key, entity, columns, buckets) into the
    table, and everything reads it from there, so that all read paths give the same answer. Ingest refuses to
    run with a file that disagrees, since one of the two is not what you mean.

    Nothing was read or written; the table keeps its definition. `thermocline table alter` changes the table
    to match the file where possible (--dry-run only shows the changes). Otherwise change the file to match
    the table, or create a new table with the new definition.
    """

    code = "definition-differs"
    _what = "the configuration of {table}, against the definition in the table, has {_problems}"
    _listed = "differences"
    _state = "nothing was read or written; the table keeps its definition."
    _next = (
        "thermocline table alter {table}      (if the file is right: changes the table to match)\n"
        "thermocline table diff {table}      (if the table is right: has the lines for [tables.{table}])"
    )

    table: str
    differences: tuple[str, ...]


class AlterationRefused(Listing, ConfigurationError):
    """The table can't be altered to match the configuration.

    `thermocline table alter` adds columns (existing rows have null in them), widens int to long and the
    precision of decimals, adds topics, changes the number of buckets to a multiple or a divisor, and changes
    on_error, record_bytes_max, require_fields, suppress_unchanged and transactional. Everything else would
    change the meaning of existing rows, keys, indexes and deletes. Every change that can't be made is listed
    with its reason.

    Nothing was written; the table keeps its definition. Undo those changes in the file; `thermocline table
    diff` prints the lines to write there. If you need them, create a new table under another name and
    identifier, and let it read the log from the start.
    """

    code = "alteration-refused"
    http_status = 409
    _what = "altering {table} to match the configuration has {_problems}"
    _state = "nothing was written; the table keeps its definition."
    _next = "thermocline table diff {table}      (has the lines for [tables.{table}]; or use a new table)"

    table: str
    problems: tuple[str, ...]


class NotConfirmed(ConfigurationError):
    """A command that destroys, gives up or makes something was not confirmed.

    At a terminal, commands that delete ask, and so do those that write what they show first. Without one,
    they need --yes, so that no script destroys data by accident. `ingest accept-gap` and `ingest rebase` act
    only on exactly the state that the user saw: all facts that the error printed must be repeated on the
    command line, and no others. If they differ, the log may have lost more since, or another problem must be
    solved first. `apply` does to a table only what its plan showed, so it stops if somebody changed the table
    meanwhile.

    Nothing was changed. Check what would be removed, or what is found now, then run the printed command.
    """

    code = "not-confirmed"
    http_status = 409
    _what = "{problem}."
    _state = "nothing was changed."
    _cause = "{detail}"
    _next = "{command}"

    problem: str
    command: str
    detail: str = ""


class PurgeRefused(ConfigurationError):
    """The table's files can't be deleted safely.

    `thermocline table drop --purge` deletes only the folders data, metadata and thermocline below the table's
    location. It refuses if that could hit another table's files: another table of the catalog has its
    location there, above or below (it was renamed, or its name is below this one); metadata of another table
    is there (one dropped earlier, or of another catalog); gc.enabled is false; or the table's own paths point
    elsewhere. It also refuses if this can't be determined.

    Nothing was dropped or deleted. Drop the table without --purge, and delete its files with your storage's
    own tools.
    """

    code = "purge-refused"
    http_status = 409
    _what = "the files of {identifier} below {location} are not deleted: {detail}."
    _state = "nothing was dropped or deleted."
    _next = "thermocline table drop {table}      (leaves the files where they are)"

    table: str
    identifier: str
    location: str
    detail: str


class PortTaken(ConfigurationError):
    """A process can't listen on its port.

    The port is in use, and a server may be running already: `thermocline status` says what answers there. Or
    the address is not one of this machine's, or a port below 1024 needs a permission that the process lacks.

    No data was touched. Stop the other process, or choose another address or port.
    """

    code = "port-taken"
    _what = "can't listen on {host}:{port}: {detail}."
    _next = "{_step}"

    host: str
    port: int
    detail: str = "it is in use by another process"
    step: str = ""

    @property
    def _step(self) -> str:
        return self.step or "thermocline status      (shows what answers there; or choose another port)"

    @classmethod
    def of(cls, host: str, port: int, error: OSError) -> Self:
        """From what the system says."""
        if error.errno == errno.EADDRINUSE:
            return cls(host=host, port=port)
        return cls(host=host, port=port, detail=error.strerror or str(error))


class StateDirUnusable(ConfigurationError):
    """The server's state folder can't be used.

    serving.state_dir holds what the server has read from the log, and the indexes of the tables' files. The
    server needs write access, and no other server may use the same folder. Since it has rows, only the user
    that runs the server can enter it: one that others could enter is closed to them, and one that belongs to
    another user, as the mount point of a volume may, is refused. The same holds for serving.extract_jobs_dir.

    No data was touched. Make the folder writable, stop the other server, or set the setting to another
    folder, such as one below the mount point, which the server makes by itself.
    """

    code = "state-dir-unusable"
    _what = "serving.state_dir {path} can't be used: {detail}."
    _next = "make it writable, stop the other server, or set serving.state_dir to another folder"

    path: str
    detail: str


class DependencyMissing(ConfigurationError):
    """A program or package that this command needs is not installed.

    Ingest needs PySpark and a JDK, and serving needs packages of its own. Each is an optional extra, so that
    a machine that only reads needs no JVM.

    No data was touched. Install what the message names, and repeat the command.
    """

    code = "dependency-missing"
    _what = "{what_is_missing} is required and was not found."
    _next = "{how_to_get}"

    what_is_missing: str
    how_to_get: str

    @classmethod
    def of_extra(cls, what_is_missing: str, extra: str) -> Self:
        """What an optional part of the installation has. A package index has another program of our name."""
        how_to_get = f"pip install '.[{extra}]'      (in a checkout of Thermocline)"
        return cls(what_is_missing=what_is_missing, how_to_get=how_to_get)
