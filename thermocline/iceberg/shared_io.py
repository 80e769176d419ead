"""Reach files through clients of object stores that all tables of the process share."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Final

from pyarrow.fs import FileSystem
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

Access = frozenset[tuple[str, str]]

# Of the properties, which also hold the table's, those that a client is made of.
_CLIENT_PREFIXES: Final = ("adls.", "client.", "gcs.", "hdfs.", "oss.", "s3.")
# A catalog that vends credentials gives each table its own, and new ones every hour or so.
_FILE_SYSTEMS_MAX: Final = 32


class SharedFileIO(PyArrowFileIO):
    """A `PyArrowFileIO` that has its file systems in common with others of the same properties.

    PyIceberg makes a FileIO whenever it loads a table, and `PyArrowFileIO` makes a client for each, whose
    connections are its own. Arrow makes none while a request of another client waits for its answer.
    PyIceberg loads this class by its name (``py-io-impl``).
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._share()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    @property
    def access(self) -> Access:
        """The properties that say where a store is, and by which keys it is reached."""
        return frozenset(one for one in self.properties.items() if one[0].startswith(_CLIENT_PREFIXES))

    def _share(self) -> None:
        self.fs_by_scheme = lru_cache(partial(_file_system, self.access))


def is_same_access(one: FileIO, other: FileIO) -> bool:
    """Whether both are known to reach the same stores by the same keys."""
    return isinstance(one, SharedFileIO) and isinstance(other, SharedFileIO) and one.access == other.access


@lru_cache(maxsize=_FILE_SYSTEMS_MAX)
def _file_system(access: Access, scheme: str, netloc: str | None) -> FileSystem:
    return PyArrowFileIO(dict(access)).fs_by_scheme(scheme, netloc)
