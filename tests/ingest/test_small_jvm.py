"""The small JVM that commits where there is no Spark session."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace

import pytest

from ingest.java import small_jvm
from thermocline.errors import EngineFailed
from thermocline.settings import CatalogSettings


@pytest.mark.jvm
def test_a_jvm_that_ends_as_it_starts_fails_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: in place of Java, a program that ends at once, as one that was killed."""
    monkeypatch.setattr("ingest.java._running", {})
    monkeypatch.setattr("ingest.java.find_java", lambda: SimpleNamespace(executable=Path("/bin/true")))
    with (
        pytest.raises(EngineFailed, match="the JVM"),
        small_jvm(CatalogSettings(uri="sqlite:///none.db", warehouse="file:///none")),
    ):
        pass
    gc.collect()  # what it left open would be reported here
