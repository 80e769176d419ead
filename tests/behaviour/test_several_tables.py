"""One ``ingest run`` for several tables: each is owned by itself, and what stops one stops no other."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import cast

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.behaviour.several import Several, said
from tests.behaviour.topic import APP
from thermocline.cli import entry
from thermocline.cli.server_answers import Client
from thermocline.dev.ports import free_ports
from thermocline.dev.stack import Stack
from thermocline.errors import ExitCode, NotReady, OffsetsGone

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def several(new_stack: Callable[..., Stack]) -> Several:
    return Several(new_stack("several"), ["first", "second", "third"])


def shown(port: int) -> dict[tuple[str, str], float]:
    """The metrics by name and table."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
    samples = (one for family in text_string_to_metric_families(text) for one in family.samples)
    return {(one.name, one.labels["table"]): one.value for one in samples if "table" in one.labels}


def status_of(several: Several) -> tuple[int, dict[str, dict[str, object]]]:
    with redirect_stdout(out := StringIO()):
        code = entry.run(["--config", str(several.config), "status", "--json", "--without", "server"])
    return code, {one["table"]: one for one in json.loads(out.getvalue())["tables"]}


def test_a_table_that_stops_with_an_error_is_named_and_the_others_go_on(several: Several) -> None:
    """Goal: log, metrics, status and exit code tell of one table alone; SIGTERM drains the others.

    Method: one process owns all; while it is frozen, the log of one table is cut beyond its seam, as
    retention does.
    """
    (port,) = free_ports(1)
    running = several.command("ingest", "run", "--metrics-port", str(port))
    several.write(0)
    several.wait_until_committed("first", "second", "third", by=running)
    second = several.tables["second"]
    os.killpg(running.process.pid, signal.SIGSTOP)
    second.write(range(40), "lost")
    second.cut(dict.fromkeys(range(second.partitions()), -1))
    os.killpg(running.process.pid, signal.SIGCONT)
    several.wait_for(lambda: bool(said(running, "ingest of a table stopped")), "it meets the gap", running)
    (line,) = said(running, "ingest of a table stopped")
    assert (line["table"], line["code"], line["others_running"]) == ("second", OffsetsGone.code, 2)

    for name in ("first", "third"):
        several.tables[name].write(range(100, 110), "after that")
    several.wait_until_committed("first", "third", by=running)
    owned = {table for name, table in shown(port) if name == "thermocline_ingest_commit_interval_seconds"}
    assert owned == {"first", "third"}
    code, tables = status_of(several)
    assert code == OffsetsGone.exit_code
    assert [name for name, entry in tables.items() if "error" in entry] == ["second"]
    assert tables["second"]["owner"]["stopped_by"] == OffsetsGone.code  # type: ignore[index]
    assert tables["first"]["owner"]["pid"] == running.process.pid  # type: ignore[index]
    assert [tables[name]["owner"]["ended"] for name in ("first", "third")] == ["", ""]  # type: ignore[index]

    several.tables["first"].write(range(200, 210), "before the end")
    running.tell_to_stop()
    assert running.process.wait() == OffsetsGone.exit_code
    (failed,) = said(running, "command failed")
    assert failed["code"] == OffsetsGone.code
    assert "accept-gap second" in failed["next"]
    _, tables = status_of(several)
    assert all(entry["owner"]["ended"] for entry in tables.values())  # type: ignore[index]


def test_once_commits_what_each_table_lacks_and_then_has_nothing_to_do(several: Several) -> None:
    names = ("first", "third")
    for name in names:
        several.tables[name].write(range(300, 310), "once")
    running = several.command("ingest", "run", *names, "--once", "--json")
    assert running.process.wait() == ExitCode.DONE
    several.wait_until_committed(*names, by=several.command("version"))
    again = several.command("ingest", "run", *names, "--once")
    assert again.process.wait() == ExitCode.NOTHING_TO_DO


def test_one_tailer_process_serves_several_tables_as_of_now(several: Several) -> None:
    """Goal: each answer has the newest record of its table, and a table that can't be served harms no other.

    Method: three tables and one tailer process; the log of one table is cut beyond its seam.
    """
    second = several.tables["second"]
    second.write(range(40), "lost")
    second.cut(dict.fromkeys(range(second.partitions()), -1))
    running = several.command("serve", environment={"THERMOCLINE_SERVING__TAILERS": "1"})
    for name in ("first", "third"):
        path = f"/v1/tables/{name}/rows?app_id={APP}&user_id=u7"
        several.wait_for(lambda path=path: several.stack.get(path)[0] == 200, f"{name} is served", running)  # type: ignore[misc]
    children = psutil.Process(running.process.pid).children(recursive=True)
    titles = [" ".join(child.cmdline()).strip() for child in children]
    assert [title for title in titles if "tailer" in title] == ["thermocline: tailer first and 2 more"]
    with Client(several.stack.url) as client:
        for number in range(3):
            for name in ("first", "third"):
                live = several.tables[name]
                live.send(7, f"{name} {number}")
                answer = client.lookup(name, {"app_id": str(APP), "user_id": "u7"}, live.topic.flush())
                (row,) = cast("list[dict[str, object]]", answer["rows"])
                assert row["value"] == f"{name} {number}"
        with pytest.raises(NotReady):
            client.lookup("second", {"app_id": str(APP), "user_id": "u7"})
    running.tell_to_stop()
    assert running.process.wait() == 0
