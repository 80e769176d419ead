"""Reach files through clients of object stores that all tables of the process share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib import import_module
from typing import Any, Final

from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg import io
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties
from pyiceberg.types import strtobool

Access = frozenset[tuple[str, str]]

# Of the properties, which also hold the table's, those that a client is made of.
_CLIENT_PREFIXES: Final = ("adls.", "client.", "gcs.", "hdfs.", "oss.", "s3.")
_S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3n"})
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
    made = PyArrowFileIO(dict(access)).fs_by_scheme(scheme, netloc)
    return _s3(dict(access), made.region) if scheme in _S3_SCHEMES else made


def _s3(properties: Mapping[str, str], region: str) -> S3FileSystem:
    """A client that sends a small file in one request instead of three: PyIceberg 0.12 makes none.

    All else is as PyIceberg has it, by the same properties; the region is what it found.
    """
    more: dict[str, Any] = {
        argument: read(value)
        for argument, names, read in _S3_ARGUMENTS
        if (value := next((properties[name] for name in names if properties.get(name)), None))
    }
    return S3FileSystem(region=region, allow_delayed_open=True, **more)


def _loaded(name: str) -> Any:
    module, _, of_class = name.rpartition(".")
    return getattr(import_module(module), of_class)()


_S3_ARGUMENTS: Final[Sequence[tuple[str, Sequence[str], Callable[[str], Any]]]] = (
    ("endpoint_override", (io.S3_ENDPOINT,), str),
    ("access_key", (io.S3_ACCESS_KEY_ID, io.AWS_ACCESS_KEY_ID), str),
    ("secret_key", (io.S3_SECRET_ACCESS_KEY, io.AWS_SECRET_ACCESS_KEY), str),
    ("session_token", (io.S3_SESSION_TOKEN, io.AWS_SESSION_TOKEN), str),
    ("proxy_options", (io.S3_PROXY_URI,), str),
    ("connect_timeout", (io.S3_CONNECT_TIMEOUT,), float),
    ("request_timeout", (io.S3_REQUEST_TIMEOUT,), float),
    ("role_arn", (io.S3_ROLE_ARN, io.AWS_ROLE_ARN), str),
    ("session_name", (io.S3_ROLE_SESSION_NAME, io.AWS_ROLE_SESSION_NAME), str),
    ("force_virtual_addressing", (io.S3_FORCE_VIRTUAL_ADDRESSING,), strtobool),
    ("retry_strategy", (io.S3_RETRY_STRATEGY_IMPL,), _loaded),
    ("anonymous", (io.S3_ANONYMOUS,), strtobool),
)
