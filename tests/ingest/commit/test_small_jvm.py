"""The small JVM that commits where there is no Spark session."""

from __future__ import annotations

import gc
import re
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from thermocline.errors import EngineFailed
from thermocline.ingest.commit.java import small_jvm
from thermocline.settings import CatalogSettings


@pytest.mark.jvm
def test_a_jvm_that_ends_as_it_starts_fails_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: in place of Java, a program that ends at once, as one that was killed."""
    monkeypatch.setattr("thermocline.ingest.commit.java.catalog_jars", lambda _: (Path("of/this/test.jar"),))
    monkeypatch.setattr(
        "thermocline.ingest.commit.java.find_java", lambda: SimpleNamespace(executable=Path("/bin/true"))
    )
    with (
        pytest.raises(EngineFailed, match="the JVM"),
        small_jvm(CatalogSettings(uri="sqlite:///none.db", warehouse="file:///none")),
    ):
        pass
    gc.collect()  # what it left open would be reported here


@pytest.mark.jvm
def test_the_jvm_is_not_ended_by_what_tells_a_process_and_its_children_to_stop() -> None:
    """A terminal sends Ctrl-C to all, and systemd SIGTERM: it would end in the middle of a commit."""
    with small_jvm(CatalogSettings(uri="sqlite:///none.db", warehouse="file:///none")) as jvm:
        status = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/status").read_text()
        ignored = int(re.findall("SigIgn:(.*)", status)[0], 16)
    assert all(ignored >> number - 1 & 1 for number in (signal.SIGINT, signal.SIGTERM))
