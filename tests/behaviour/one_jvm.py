"""One JVM that makes the tables of all tests of a process; ``table create`` itself starts one each time."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import ingest.create
from ingest.java import catalog_jars, small_jvm
from thermocline.settings import CatalogSettings

_running: dict[tuple[Path, ...], Any] = {}  # by the jars that a catalog needs
_until_the_end = ExitStack()
atexit.register(_until_the_end.close)


@contextmanager
def one_jvm() -> Iterator[None]:
    """Within the block, tables are made in that JVM."""
    with pytest.MonkeyPatch.context() as patch:
        # Whoever put another one there shares it already.
        if ingest.create.small_jvm is small_jvm:  # type: ignore[attr-defined]
            patch.setattr(ingest.create, "small_jvm", _shared)
        yield


@contextmanager
def _shared(settings: CatalogSettings) -> Iterator[Any]:
    jars = catalog_jars(settings)
    if jars not in _running:
        _running[jars] = _until_the_end.enter_context(small_jvm(settings))
    yield _running[jars]
