"""What must be written differently before a command can work."""

from __future__ import annotations

from thermocline.errors.root import ExitCode, Listing, ThermoclineError


class ConfigurationError(ThermoclineError):
    """Something must be written differently before a command can work."""

    http_status = 500
    exit_code = ExitCode.USAGE


class ConfigFileMissing(ConfigurationError):
    """There is no configuration file.

    Thermocline looks for one file, in this order: the --config option, the THERMOCLINE_CONFIG variable, and
    thermocline.toml in the current folder. The first that is named is used, and must exist.

    Nothing was read or written. Go to the folder that holds the file, or name the file.
    """

    code = "config-file-missing"
    _what = "the configuration file {path} does not exist."
    _cause = "looked for it in: {searched}."
    _next = "thermocline --config PATH config check"

    path: str
    searched: tuple[str, ...]


class ConfigInvalid(Listing, ConfigurationError):
    """The configuration has problems.

    All problems of the file and of the THERMOCLINE_* variables are listed together: unknown names (with the
    closest known one), missing and wrong values, brokers without a port, databases that SQLAlchemy does not
    know, and table definitions that cannot work. `thermocline config check` also lists the folders that this
    machine is to write and can't. A value of a variable such as THERMOCLINE_KAFKA__BOOTSTRAP_SERVERS takes
    precedence over the file's.

    A table's definition says what a row is: columns and their types, the key, and the entity that services
    look up by. Key columns must be declared and exact (no double, boolean, decimal or timestamptz), the
    entity is a leading part of the key, and names that begin with "_" are reserved. Names that begin with "$"
    are refused when a table is created or a column is added, since Trino's hidden columns have such names. A
    table that has such a column already is still read and written.

    The broker of `thermocline dev` refuses a topic whose name differs from that of another one only in "."
    and "_", which Kafka does not tell apart.

    Nothing was read or written. Correct them, and let `thermocline config check` say "ok".
    """

    code = "config-invalid"
    _what = "the configuration {of} has {_problems}"
    _next = "correct the file or the environment, then: thermocline config check"

    of: str  # a path, or "of table NAME"
    problems: tuple[str, ...]


class DefinitionDiffers(Listing, ConfigurationError):
    """The configuration says something else than the table's own definition.

    `thermocline table create` wrote the definition (topics, format, key, entity, columns, buckets) into the
    table, and everybody reads it from there, so that all read paths give the same answer. Ingest refuses to
    run with a file that disagrees, since one of the two is not what you mean.

    Nothing was read or written; the table goes on as it is defined. `thermocline table alter` makes the table
    say what the file says where that can be done (with --dry-run it only tells); else make the file say what
    the table says, or create a new table with the new definition.
    """

    code = "definition-differs"
    _what = "the configuration of {table}, against the definition in the table, has {_problems}"
    _listed = "differences"
    _state = "nothing was read or written; the table's own definition stands."
    _next = (
        "thermocline table alter {table}      (if the file is right: makes the table say the same)\n"
        "thermocline table show {table}      (if the table is right: make [tables.{table}] say the same)"
    )

    table: str
    differences: tuple[str, ...]


class AlterationRefused(Listing, ConfigurationError):
    """A table cannot be altered to what the configuration says.

    `thermocline table alter` adds columns (rows that are there have null in them), widens int to long and the
    precision of decimals, adds topics, and changes on_error, suppress_unchanged and transactional. Everything
    else would change what the rows, keys, indexes and deletes in the table mean. Every change that can't be
    made is listed with its reason.

    Nothing was written; the table stands as it is defined. Take those changes back in the file; `thermocline
    table show` says what the table has. Where they are needed, create a new table under another name and
    identifier, and let it read the log from the start.
    """

    code = "alteration-refused"
    http_status = 409
    _what = "the alteration of {table} to what the configuration says has {_problems}"
    _state = "nothing was written; the table stands as it is defined."
    _next = "thermocline table show {table}      (make [tables.{table}] say the same, or use a new table)"

    table: str
    problems: tuple[str, ...]


class ConfirmationMissing(ConfigurationError):
    """A command that destroys something was not confirmed.

    At a terminal it asks; where nobody can answer it wants --yes, so that no script destroys by accident.

    Nothing was changed. Look at what would go, and run the command again as it is printed.
    """

    code = "confirmation-missing"
    http_status = 409
    _what = "{what_goes} would be destroyed, and nobody confirmed it."
    _state = "nothing was changed."
    _next = "{command}"

    what_goes: str
    command: str


class PurgeRefused(ConfigurationError):
    """The files of a table cannot be deleted with it.

    `thermocline table drop --purge` deletes what lies in the folders data, metadata and thermocline below a
    table's location, and nothing else. It refuses where that could hit other tables' files: another table of
    the catalog has its place there, above or below (it was renamed, or is named below this one); metadata of
    another table lies there (it was dropped earlier, or is of another catalog); gc.enabled is false; or paths
    of the table's own point elsewhere. It refuses, too, where that can't be told.

    Nothing was dropped or deleted. Drop the table without --purge, and delete its files by the means of the
    storage.
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
    """Another process listens on the address that the server should use.

    It may be a server that is already running: `thermocline status` says what answers there.

    No data was touched. Stop the other process, or choose another port.
    """

    code = "port-taken"
    _what = "{host}:{port} is in use by another process."
    _next = "thermocline status      (says what answers there; or choose another port)"

    host: str
    port: int


class StateDirUnusable(ConfigurationError):
    """The folder of a server's state can't be used.

    serving.state_dir holds what the server has read of the log, and the indexes of the tables' files. The
    server must be able to write there, and no other server may use the same folder.

    No data was touched. Free the folder or make it writable, or set serving.state_dir to another one.
    """

    code = "state-dir-unusable"
    _what = "serving.state_dir {path} can't be used: {detail}."
    _next = "make it writable, stop the other server, or set serving.state_dir to another folder"

    path: str
    detail: str


class DependencyMissing(ConfigurationError):
    """A program or package that this command needs is not installed.

    Ingest needs PySpark and a JDK, serving needs its own packages; each is an optional part, so that a
    machine that only reads needs no JVM.

    No data was touched. Install what is missing as the message says, and repeat the command.
    """

    code = "dependency-missing"
    _what = "{what_is_missing} is needed here and was not found."
    _next = "{how_to_get}"

    what_is_missing: str
    how_to_get: str
