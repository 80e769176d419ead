"""Each planted problem is named by `doctor` with a fix, and is gone once that was pasted into a shell."""

from __future__ import annotations

import itertools
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.doctor.planted import CONFIG, WELL, Deployment, GuardedKafka, findings, produce
from thermocline.dev.ports import free_ports
from thermocline.errors import ExitCode

pytestmark = pytest.mark.jvm

_NUMBERS = itertools.count(1)
ONE, SPACED = b'{"app_id":1,"user_id":"ada"}', b'{"app_id": 1, "user_id": "ada"}'


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    with GuardedKafka(tmp_path_factory.mktemp("guarded")) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def tools(kafka: GuardedKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    kafka.tools(folder)
    return folder


class Planting:
    """Makes deployments, each with a topic of its own."""

    def __init__(self, kafka: GuardedKafka, tools: Path, folder: Path) -> None:
        self.kafka, self.tools, self.folder = kafka, tools, folder
        self.topic = f"profiles{next(_NUMBERS)}"

    def topic_with(self, entries: Mapping[str, str] | None = None, partitions: int = 2) -> None:
        self.kafka.create_topic(self.topic, partitions, {**WELL, **(entries or {})})

    def deployment(self, more: str = "", sections: str = "", servers: str = "", port: int = 0) -> Deployment:
        planted = Deployment(self.folder, self.tools)
        written = CONFIG.format(
            servers=servers or self.kafka.bootstrap_servers,
            topic=self.topic,
            port=port or free_ports(1)[0],
            more=more,
        )
        planted.file.write_text(written.replace("[catalog]", f"{sections}\n[catalog]", 1))
        return planted


@pytest.fixture
def planting(kafka: GuardedKafka, tools: Path, tmp_path: Path) -> Planting:
    return Planting(kafka, tools, tmp_path)


@pytest.mark.parametrize(
    ("check", "entries", "says"),
    [
        ("retention", {"retention.ms": "60000"}, "retention.ms is 60,000 (1 minute)"),
        ("retention", {"retention.bytes": "1000000"}, "retention.bytes is 1000000"),
        (
            "compaction lag",
            {"cleanup.policy": "compact", "min.compaction.lag.ms": "1000"},
            "min.compaction.lag.ms is 1,000 (1 second)",
        ),
        (
            "tombstones",
            {"cleanup.policy": "compact", "delete.retention.ms": "1000"},
            "delete.retention.ms is 1,000 (1 second)",
        ),
    ],
)
def test_how_a_topic_is_set(planting: Planting, check: str, entries: dict[str, str], says: str) -> None:
    planting.topic_with(entries)
    planted = planting.deployment()
    (finding,) = findings(planted.doctor(), check)
    assert (finding["subject"], finding["looked_at"]) == (planting.topic, says)
    assert findings(planted.doctor(finding["fix"]), check) == []


def test_a_dead_letter_topic_that_takes_less_than_its_table(planting: Planting) -> None:
    planting.topic_with()
    planting.kafka.create_topic(f"{planting.topic}-dead", 1, {"max.message.bytes": "1000"})
    planted = planting.deployment(more=f'dead_letter_topic = "{planting.topic}-dead"')
    (finding,) = findings(planted.doctor(), "message bytes")
    assert finding["looked_at"] == "max.message.bytes is 1.0 kB, that of the topics of profiles 1.0 MB"
    assert findings(planted.doctor(finding["fix"]), "message bytes") == []


def test_missing_rights(planting: Planting) -> None:
    planting.topic_with()
    login = """[kafka.client]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "ada"
"sasl.password" = "secret"
"""
    planted = planting.deployment(sections=login, servers=planting.kafka.guarded_servers)
    report = planted.doctor()
    (finding,) = findings(report, "rights")
    assert finding["looked_at"] == "the user ada lacks READ, DESCRIBE, DESCRIBE_CONFIGS"
    assert report["exit_code"] != ExitCode.DONE
    assert findings(planted.doctor(finding["fix"]), "rights") == []


def test_a_topic_that_is_missing(planting: Planting) -> None:
    planted = planting.deployment()
    report = planted.doctor()
    (finding,) = findings(report, "topics")
    assert (finding["code"], report["exit_code"]) == ("topic-missing", ExitCode.USAGE)
    assert findings(planted.doctor(finding["fix"]), "topics") == []


def test_a_table_that_is_missing(planting: Planting) -> None:
    planting.topic_with()
    produce(planting.kafka.bootstrap_servers, planting.topic, [(0, ONE)])
    planted = planting.deployment()
    (finding,) = findings(planted.doctor(), "tables")
    assert finding["code"] == "table-missing"
    report = planted.doctor(finding["fix"])
    assert findings(report, "tables") == []
    checked = {one["check"]: one["outcome"] for one in report["checks"]}
    looked = ("log", "catalog rights", "store", "rights", "records", "layout", "hot window", "clocks")
    assert {name: checked[name] for name in looked} == dict.fromkeys(looked, "well")
    assert report["exit_code"] == ExitCode.DONE


def test_a_port_that_another_program_has(planting: Planting) -> None:
    planting.topic_with()
    with socket.create_server(("127.0.0.1", 0)) as other:
        planted = planting.deployment(port=other.getsockname()[1])
        threading.Thread(target=_hang_up, args=(other,), daemon=True).start()
        (finding,) = findings(planted.doctor(), "port")
        assert "it speaks no http" in finding["looked_at"]
        assert findings(planted.doctor(finding["fix"]), "port") == []
        other.shutdown(socket.SHUT_RDWR)


def test_too_few_open_files(planting: Planting) -> None:
    planting.topic_with()
    planted = planting.deployment()
    (finding,) = findings(planted.doctor("ulimit -Sn 256"), "open files")
    assert finding["looked_at"].startswith("256 open files")
    assert findings(planted.doctor(f"ulimit -Sn 256\n{finding['fix']}"), "open files") == []


def test_a_setting_without_an_effect(planting: Planting) -> None:
    planting.topic_with()
    planted = planting.deployment(sections='[audit]\nhash_key_file = "a.key"\nkeep_files = 3\n')
    report = planted.doctor()
    both = findings(report, "unused settings")
    assert [one["subject"] for one in both] == ["audit.hash_key_file", "audit.keep_files"]
    assert findings(planted.doctor("\n".join(one["fix"] for one in both)), "unused settings") == []


def test_two_spellings_of_a_key(planting: Planting) -> None:
    planting.topic_with()
    produce(planting.kafka.bootstrap_servers, planting.topic, [(0, ONE), (1, SPACED)])
    planted = planting.deployment()
    report = planted.doctor()
    (finding,) = findings(report, "spelled keys")
    assert finding["outcome"] == "problem"
    assert findings(report, "scattered keys") == []
    shown = planted.shell(finding["fix"])
    assert [ONE.decode() in shown, SPACED.decode() in shown] == [True, True]


def test_a_key_in_several_partitions(planting: Planting) -> None:
    planting.topic_with()
    produce(planting.kafka.bootstrap_servers, planting.topic, [(0, ONE), (1, ONE)])
    planted = planting.deployment()
    report = planted.doctor()
    (finding,) = findings(report, "scattered keys")
    assert f"{planting.topic}/0@0" in finding["looked_at"]
    assert f"{planting.topic}/1@0" in finding["looked_at"]
    assert findings(report, "spelled keys") == []
    assert planted.shell(finding["fix"]).count(ONE.decode()) == 2


def test_too_few_buckets_for_the_cores(planting: Planting) -> None:
    planting.topic_with(partitions=4)
    planted = planting.deployment(more="buckets = 1", sections='[spark]\nmaster = "local[4]"\n')
    planted.file.write_text(planted.file.read_text().replace('engine = "local"', 'engine = "spark"'))
    planted.shell(f"thermocline --config {planted.file} table create profiles")
    (finding,) = findings(planted.doctor(), "cores")
    assert finding["looked_at"] == "4 partitions and 1 buckets, for 4 cores"
    assert findings(planted.doctor(finding["fix"]), "cores") == []


def test_a_skewed_clock(planting: Planting, tmp_path: Path) -> None:
    """Method: a registry says the time; `timedatectl`, which needs root, is a stand-in that sets it."""
    planting.topic_with()
    with _RegistryWithClock() as registry:
        planted = planting.deployment(sections=f'[registry]\nurl = "{registry.url}"\n')
        tools = tmp_path / "bin"
        tools.mkdir()
        for tool in planting.tools.iterdir():
            (tools / tool.name).symlink_to(tool)
        sudo = tools / "sudo"
        sudo.write_text(f'#!/bin/bash\n[ "$*" = "timedatectl set-ntp true" ] && curl -s {registry.url}/set\n')
        sudo.chmod(0o755)
        planted.tools = tools
        (finding,) = findings(planted.doctor(), "clocks")
        assert "ahead of this machine's clock" in finding["looked_at"]
        assert findings(planted.doctor(finding["fix"]), "clocks") == []


def test_a_full_disk(planting: Planting, tmp_path: Path) -> None:
    """Method: a file system of a megabyte, which only root may mount."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small], check=False)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        (small / "left-behind").mkdir()
        (small / "left-behind" / "dump").write_bytes(bytes(900_000))
        planting.topic_with()
        planted = planting.deployment()
        text = planted.file.read_text().replace("[serving]", f'[serving]\nstate_dir = "{small}/serving"')
        planted.file.write_text(text)
        (finding,) = findings(planted.doctor(), "disks")
        assert finding["subject"] == f"serving.state_dir ({small})"
        assert f"{small}/left-behind" in planted.shell(finding["fix"]), "what to delete"
    finally:
        subprocess.run(["umount", small], check=True)


def _hang_up(server: socket.socket) -> None:
    """Says something that is no HTTP to whoever comes."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        connection.sendall(b"SSH-2.0-other\r\n")
        connection.close()


class _RegistryWithClock(ThreadingHTTPServer):
    """Has no schema, and a clock that is ten minutes fast until it is set."""

    def __init__(self) -> None:
        self.ahead = timedelta(minutes=10)
        super().__init__(("127.0.0.1", 0), _Answers)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Answers(BaseHTTPRequestHandler):
    server: _RegistryWithClock

    def do_GET(self) -> None:
        if self.path == "/set":
            self.server.ahead = timedelta()
        content = b'{"error_code":40403,"message":"Schema not found"}'
        self.send_response(404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return format_datetime(datetime.now(UTC) + self.server.ahead, usegmt=True)

    def log_message(self, *_: object) -> None:
        pass
