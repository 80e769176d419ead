"""A file store in memory, by PyIceberg's interface."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from pyiceberg.io.pyarrow import PyArrowFileIO

Edge = Callable[[str, Callable[[], Exception] | None], None]


class FakeIO(PyArrowFileIO):
    """Objects by path: bytes, or what stands for a data file (`tests.simulation.engine`).

    A subclass of the FileIO that PyIceberg takes by itself, whose folders can be listed. ``deleted`` is
    called with each path that goes.
    """

    def __init__(self, edge: Edge, deleted: Callable[[str], None]) -> None:
        super().__init__()
        # PyIceberg sets it on each FileIO: what lists a folder, by paths without scheme.
        self.fs_by_scheme = lambda _scheme, _netloc: SimpleNamespace(get_file_info=self._listed)
        self.objects: dict[str, Any] = {}
        self._edge = edge
        self._deleted = deleted

    def new_input(self, location: str) -> Any:
        """An object to be read."""
        return _Input(self, location)

    def new_output(self, location: str) -> Any:
        """An object to be written."""
        return _Output(self, location)

    def delete(self, location: Any) -> None:
        """Raises FileNotFoundError where there is nothing."""
        self.ask("store delete")
        if location not in self.objects:
            raise FileNotFoundError(location)
        del self.objects[location]
        self._deleted(location)

    def ask(self, what: str) -> None:
        """A request reaches the store."""
        self._edge(what, _away)

    def _listed(self, selector: Any) -> list[Any]:
        self.ask("store list")
        folder = f"file://{selector.base_dir}/"
        return [
            SimpleNamespace(path=path.removeprefix("file://"), is_file=True, size=0, mtime_ns=None)
            for path in self.objects
            if path.startswith(folder) and "/" not in path.removeprefix(folder)
        ]


class _Input:
    def __init__(self, io: FakeIO, path: str) -> None:
        self._io = io
        self.location = path

    def open(self, seekable: bool = True) -> _Source:
        self._io.ask("store read")
        if self.location not in self._io.objects:
            raise FileNotFoundError(self.location)
        return _Source(self._io.objects[self.location])

    def exists(self) -> bool:
        self._io.ask("store read")
        return self.location in self._io.objects


class _Output:
    def __init__(self, io: FakeIO, path: str) -> None:
        self._io = io
        self.location = path

    def create(self, overwrite: bool = False) -> _Sink:
        self._io.ask("store write")
        if not overwrite and self.location in self._io.objects:
            raise FileExistsError(self.location)
        return _Sink(self._io, self.location)


class _Source:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, size: int = -1) -> bytes:
        return self._content if size < 0 else self._content[:size]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


class _Sink:
    """What is written is there once it is closed, whole."""

    def __init__(self, io: FakeIO, path: str) -> None:
        self._io = io
        self._path = path
        self._parts: list[bytes] = []

    def write(self, content: bytes) -> int:
        self._parts.append(content)
        return len(content)

    def close(self) -> None:
        self._io.objects[self._path] = b"".join(self._parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()


def _away() -> Exception:
    return OSError("the store is away")
