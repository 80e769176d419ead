"""The client on a real server and broker: every example of docs/client.md, in its order."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.behaviour.topic import APP, Topic
from thermocline.dev.stack import TOPIC, Stack

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


@pytest.mark.full
def test_the_examples_of_its_page_hold(
    new_stack: Callable[..., Stack], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that only Kafka has, a record that an example writes, and the assertions of the page."""
    stack = new_stack("client")
    topic = Topic(stack.settings.kafka, TOPIC)
    for user, key in (("ada", "plan"), ("ada", "city"), ("cyd", "plan")):
        topic.send((APP, user, key), "free")
    topic.flush()
    monkeypatch.setenv("THERMOCLINE_SERVING__EXTRACT_JOBS_DIR", str(tmp_path / "jobs"))
    stack.wait_until_ready(stack.serve())
    page = PAGE.read_text()
    assert "127.0.0.1:9092" in page
    page = page.replace("http://127.0.0.1:8080", stack.url)
    page = page.replace("127.0.0.1:9092", stack.kafka.bootstrap_servers)
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 10
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), namespace)
    assert namespace["table"].num_rows == 3  # type: ignore[attr-defined]
    assert pq.read_table(tmp_path / "profiles.parquet").num_rows == 3
    namespace.clear()  # its producer would look for a broker that has ended
