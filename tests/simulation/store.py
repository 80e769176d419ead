"""A file store in memory, by PyIceberg's interface."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from pyiceberg.io.pyarrow import PyArrowFileIO

OF_UNIQUE_NAMES = (".parquet", ".puffin", ".avro", ".arrow")
"""Nobody writes such a file twice, and nobody asks whether there is one."""
Edge = Callable[[str, Callable[[], Exception] | None], None]


class FakeIO(PyArrowFileIO):
    """Objects by path: bytes, or what stands for a data file (`tests.simulation.engine`).

    A subclass of the FileIO that PyIceberg takes by itself, whose folders can be listed. ``deleted`` is
    called with each path that goes, ``now_ms`` says when a file was written.
    """

    def __init__(
        self, edge: Edge, deleted: Callable[[str], None], now_ms: Callable[[], int] | None = None
    ) -> None:
        super().__init__()
        # PyIceberg sets it on each FileIO: what lists a folder, by paths without scheme.
        self.fs_by_scheme = lambda _scheme, _netloc: SimpleNamespace(get_file_info=self._listed)
        self.objects: dict[str, Any] = {} if now_ms is None else _Dated(now_ms)
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
        written = self.objects.written if isinstance(self.objects, _Dated) else {}
        return [
            SimpleNamespace(
                path=path.removeprefix("file://"), is_file=True, size=0, mtime_ns=written.get(path)
            )
            for path in self.objects
            if path.startswith(folder) and (selector.recursive or "/" not in path.removeprefix(folder))
        ]


class _Dated(dict[str, Any]):
    """Objects, and when each was written, in nanoseconds since 1970."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._now_ms = now_ms
        self.written: dict[str, int] = {}

    def __setitem__(self, path: str, content: Any) -> None:
        super().__setitem__(path, content)
        self.written[path] = self._now_ms() * 1_000_000


class _Input:
    def __init__(self, io: FakeIO, path: str) -> None:
        self.io = self._io = io
        self.location = path

    def __len__(self) -> int:
        self._io.ask("store read")
        return 1_000

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
        is_one_of_its_own = self.location.endswith(OF_UNIQUE_NAMES)
        if (not overwrite or is_one_of_its_own) and self.location in self._io.objects:
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
        self.closed = False

    def write(self, content: Any) -> int:
        self._parts.append(bytes(content))
        return len(content)

    def tell(self) -> int:
        return sum(map(len, self._parts))

    def flush(self) -> None:
        """Nothing is written before it is closed."""

    def close(self) -> None:
        self.closed = True
        self._io.objects[self._path] = b"".join(self._parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()


def _away() -> Exception:
    return OSError("the store is unavailable")
