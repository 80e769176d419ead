"""A class without a compiler: the JVM checks it, and it does what it says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.dev.java_class import class_that_calls
from thermocline.jvm.java import find_java

pytestmark = [pytest.mark.jvm, pytest.mark.full]


@pytest.mark.parametrize(("pattern", "complaint"), [("yyyy", ""), ("b", "Illegal pattern character 'b'")])
def test_it_calls_the_method_with_its_argument(tmp_path: Path, pattern: str, complaint: str) -> None:
    written = class_that_calls("some/Main", "java/text/SimpleDateFormat", "applyPattern", pattern)
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "Main.class").write_bytes(written)
    command = [str(find_java().executable), "-Xverify:all", "-cp", str(tmp_path), "some.Main"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode == 0) is not bool(complaint), ended.stderr
    assert complaint in ended.stderr
