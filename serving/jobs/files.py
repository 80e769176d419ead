"""The files of an extract job: in the folder of its record, or in an object store."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from thermocline.iceberg.catalog_properties import store_properties
from thermocline.iceberg.files import listed_folder, parts_of, read_file, write_file
from thermocline.iceberg.shared_io import SharedFileIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyiceberg.io.pyarrow import PyArrowFileIO

    from thermocline.settings import CatalogSettings

JOB: Final = "job.json"
CANCEL: Final = "cancel"
MANIFEST: Final = "manifest.json"


class Sink(Protocol):
    """What a file is written to."""

    def write(self, chunk: Any, /) -> Any:
        """Takes bytes."""


class JobFiles(Protocol):
    """The files of one job. What fails raises `OSError`."""

    def sink(self, name: str) -> AbstractContextManager[Sink]:
        """A new file, which is stored once the block has ended. A block that fails leaves a part of one."""

    def publish(self, manifest: bytes) -> None:
        """Stores the manifest, which appears whole."""

    def manifest(self) -> bytes | None:
        """The manifest, if there is one."""

    def delete(self) -> None:
        """Deletes them all: the manifest first, since without it nobody takes the others for a result."""


class FolderFiles(JobFiles):
    """Beside the job's record, in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def sink(self, name: str) -> Iterator[Sink]:
        """See `JobFiles`."""
        with (self.folder / name).open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def publish(self, manifest: bytes) -> None:
        """See `JobFiles`."""
        replace_file(self.folder / MANIFEST, manifest)

    def manifest(self) -> bytes | None:
        """See `JobFiles`."""
        with suppress(FileNotFoundError):
            return (self.folder / MANIFEST).read_bytes()
        return None

    def delete(self) -> None:
        """See `JobFiles`."""
        (self.folder / MANIFEST).unlink(missing_ok=True)
        for path in self.folder.iterdir():
            if path.name not in {JOB, CANCEL}:
                path.unlink()


class ObjectFiles(JobFiles):
    """Below a location of an object store that no other job has."""

    def __init__(self, io: PyArrowFileIO, location: str) -> None:
        """``location`` is a URI without a slash at its end."""
        self._io = io
        self._location = location

    @contextmanager
    def sink(self, name: str) -> Iterator[Sink]:
        """See `JobFiles`."""
        with self._io.new_output(self._path(name)).create(overwrite=True) as stream:
            yield stream

    def publish(self, manifest: bytes) -> None:
        """See `JobFiles`."""
        write_file(self._io, self._path(MANIFEST), manifest)

    def manifest(self) -> bytes | None:
        """See `JobFiles`."""
        with suppress(FileNotFoundError):
            return read_file(self._io, self._path(MANIFEST))
        return None

    def parts(self, name: str, start: int) -> Iterator[bytes]:
        """The bytes of a file from ``start`` on."""
        return parts_of(self._io, self._path(name), start)

    def delete(self) -> None:
        """See `JobFiles`."""
        paths = [file.path for file in listed_folder(self._io, self._location)]
        for path in sorted(paths, key=lambda path: path != self._path(MANIFEST)):
            self._io.delete(path)

    def _path(self, name: str) -> str:
        return f"{self._location}/{name}"


def store_io(catalog: CatalogSettings) -> PyArrowFileIO:
    """Reaches object stores, by the keys in the catalog's properties or in the machine's environment."""
    return SharedFileIO(store_properties(catalog))


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file that appears whole, also after a power failure."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
