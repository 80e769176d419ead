"""A lake of our own for tests: a real S3 store and a real REST catalog, each behind a proxy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.http_proxy import HttpProxy
from thermocline.dev.rest_catalog import LocalRestCatalog
from thermocline.dev.s3 import LocalS3


class ProxiedLake:
    """What a `Stack` takes as its REST catalog; use it as a context manager.

    The catalog's own requests to the store do not go through the proxy.
    """

    def __init__(self, folder: Path, more: Mapping[str, str] = {}) -> None:  # never changed
        """``more`` are further properties."""
        self._more = more
        self._store = LocalS3(folder / "s3")
        self._catalog = LocalRestCatalog(folder / "rest", self._store)
        self.store = HttpProxy(self._store.port)
        self.catalog = HttpProxy(self._catalog.port)
        self._undo = ExitStack()

    @property
    def url(self) -> str:
        """The catalog's address."""
        return self.catalog.url

    @property
    def properties(self) -> dict[str, str]:
        """The configuration's `[catalog] properties`."""
        return {**self._catalog.properties, "s3.endpoint": self.store.url, **self._more}

    @property
    def store_pid(self) -> int | None:
        """The store's process."""
        return self._store.pid

    @property
    def objects(self) -> Path:
        """A folder with a file for each object."""
        return self._store.folder / "data" / self._store.bucket

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            for part in (self._store, self._catalog, self.store, self.catalog):
                undo.enter_context(part)
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()
