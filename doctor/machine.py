"""Checks of this machine: memory, open files, cores against the units of work, and the server's port."""

from __future__ import annotations

import os
import re
import resource
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from thermocline.doctor.finding import Finding, Outcome, not_looked_at, well
from thermocline.doctor.fixes import export, more_partitions
from thermocline.doctor.spans import shown_bytes

if TYPE_CHECKING:
    from thermocline.doctor.check import Examination
    from thermocline.settings import KafkaSettings, ServingSettings, Settings

__all__ = [
    "Memory",
    "cores",
    "cores_of",
    "memory",
    "memory_of",
    "open_files",
    "open_files_of",
    "port",
    "read_memory",
]

EXTRACT_BYTES: Final = 256_000_000
"""What DuckDB gets for each extract that runs."""
WORKER_BYTES: Final = 250_000_000
"""Of an API worker, and of a tailer: measured, see docs/benchmarks.md."""
DRIVER_BYTES: Final = 1 << 30
"""Of Spark's driver, unless spark.driver.memory says otherwise."""
PYTHON_BYTES: Final = 500_000_000
"""Of the Python processes of ingest, together: measured, too."""

FILES_MIN: Final = 1_024
"""Below it, a batch or a lookup that reads many files fails."""
FILES_ADVISED: Final = 65_536
SERVER_FILES_MIN: Final = 4_096
"""The server raises its own limit to the hard one: for files of each bucket, connections and generations."""

PORT_SECONDS: Final = 5.0
_ANSWER_CHARACTERS: Final = 65_536
_PROC: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
_SIZES: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class Memory:
    """What the machine, or this container of it, has; and what of it is available."""

    total: int
    available: int


def memory(examination: Examination) -> Sequence[Finding]:
    """Memory against what the settings may take."""
    found = read_memory()
    if found is None:
        return (not_looked_at(f"{_PROC} says nothing here"),)
    return (memory_of(examination.settings, found),)


def memory_of(settings: Settings, found: Memory) -> Finding:
    """A server and ingest, each by its settings; they need not run on one machine."""
    serving = settings.serving
    processes = serving.workers + min(serving.tailers, max(len(settings.tables), 1))
    served = processes * WORKER_BYTES + serving.extracts_max * EXTRACT_BYTES
    ingested = PYTHON_BYTES + (_driver_bytes(settings) if settings.ingest.engine == "spark" else 0)
    shown = (
        f"{shown_bytes(found.total)}, {shown_bytes(found.available)} available; by its settings, a server "
        f"takes up to {shown_bytes(served)}, ingest about {shown_bytes(ingested)}"
    )
    if served > found.total:
        room = found.total - processes * WORKER_BYTES
        extracts = max(1, room // EXTRACT_BYTES)
        means = "a server under load is ended by the system, as soon as so many extracts run"
        return Finding(Outcome.PROBLEM, shown, means, export("serving.extracts_max", extracts))
    if served + ingested > found.total:
        means = "enough for a server or for ingest, and not for both at full load on this machine"
        extracts = max(1, serving.extracts_max - -(-(served + ingested - found.total) // EXTRACT_BYTES))
        return Finding(Outcome.WARNING, shown, means, export("serving.extracts_max", extracts))
    return well(shown)


def read_memory(meminfo: Path = _PROC, limit: Path = _CGROUP) -> Memory | None:
    """What the kernel says; None where it says nothing."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
        kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        total, available = kilobytes["MemTotal"] << 10, kilobytes["MemAvailable"] << 10
    except (OSError, ValueError, KeyError, IndexError):
        return None
    try:
        total = min(total, int(limit.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return Memory(total, available)
    return Memory(total, min(total, available))


def open_files(_: Examination) -> Sequence[Finding]:
    """The limits of open files and sockets."""
    return (open_files_of(*resource.getrlimit(resource.RLIMIT_NOFILE)),)


def open_files_of(soft: int, hard: int) -> Finding:
    """The soft limit counts for commands, the hard one for the server."""
    hard = FILES_ADVISED if hard == resource.RLIM_INFINITY else hard
    soft = hard if soft == resource.RLIM_INFINITY else soft
    shown = f"{soft:,} open files (ulimit -n), at most {hard:,}"
    if hard < SERVER_FILES_MIN:
        means = "a server with many files or connections fails with `Too many open files`"
        fix = (
            "# as root; for a service of systemd: LimitNOFILE=65536\n"
            f"sudo prlimit --pid $$ --nofile={FILES_ADVISED}:{FILES_ADVISED}"
        )
        return Finding(Outcome.PROBLEM, shown, means, fix)
    if soft < FILES_MIN:
        means = "ingest and commands that read many files fail with `Too many open files`"
        return Finding(Outcome.PROBLEM, shown, means, f"ulimit -Sn {min(hard, FILES_ADVISED)}")
    return well(shown)


def cores(examination: Examination) -> Sequence[Finding]:
    """Partitions and buckets of each table against the cores that ingest runs on."""
    settings = examination.settings
    if settings.ingest.engine != "spark":
        return (well('ingest.engine is "local": tasks run one after the other'),)
    count = _master_cores(settings.spark.master)
    if count is None:
        return (not_looked_at(f"spark.master is {settings.spark.master}: the cluster knows its cores"),)
    assert examination.log is not None
    found: list[Finding] = []
    for name in examination.tables:
        topics = examination.topics_of(name)
        if not topics:
            continue
        facts = examination.log.describe(topics)
        partitions = {topic: fact.partitions for topic, fact in facts.items()}
        found += cores_of(settings.kafka, name, partitions, examination.definition(name).buckets, count)
    return found


def cores_of(
    kafka: KafkaSettings, name: str, partitions: Mapping[str, int], buckets: int, cores: int
) -> Iterator[Finding]:
    """A batch reads partitions, and then writes buckets, side by side."""
    total = sum(partitions.values())
    shown = f"{total:,} partitions and {buckets:,} buckets, for {cores:,} cores"
    if buckets < cores:
        yield Finding(
            Outcome.WARNING,
            shown,
            f"a batch's rows are merged by {buckets:,} tasks at most: the other cores wait",
            f"{export(f'tables.{name}.buckets', _multiple(buckets, cores))}\n"
            f"thermocline table alter {name} --yes",
            name,
        )
    if partitions and total < cores:
        topic = min(partitions, key=lambda one: partitions[one])
        yield Finding(
            Outcome.WARNING,
            shown,
            f"while keys are in several partitions, a batch is read by {total:,} tasks at most",
            "# only as docs/change.md says (Add partitions): most keys change their partition\n"
            + more_partitions(kafka, topic, partitions[topic] + cores - total),
            name,
        )
    if buckets >= cores and not (partitions and total < cores):
        yield well(shown, name)


def port(examination: Examination) -> Sequence[Finding]:
    """Whether the server listens at its port, or could."""
    serving = examination.settings.serving
    at = f"{serving.host}:{serving.port}"
    if _is_free(serving.host, serving.port):
        return (well(f"{at} is free; no server runs here"),)
    who = _who_answers(serving)
    if who is None:
        return (well(f"a server of Thermocline listens at {at}"),)
    other = _free_port(serving.host)
    find = f"# this shows what listens there: ss -ltnp 'sport = :{serving.port}'"
    return (
        Finding(
            Outcome.PROBLEM,
            f"{at} is taken: {who}",
            "`thermocline serve` can't listen there, and clients reach something else",
            f"{find}\n{export('serving.port', other)}",
            code="port-taken",
        ),
    )


def _who_answers(serving: ServingSettings) -> str | None:
    """What listens there; None where it is a server of ours."""
    try:
        # Without a certificate's check, as nothing secret is sent, and nothing is believed but who it is.
        answer = httpx.get(f"{serving.url}/status", timeout=PORT_SECONDS, verify=False)  # noqa: S501
        text = answer.text[:_ANSWER_CHARACTERS]
    except (httpx.HTTPError, ValueError) as error:
        return f"it speaks no {serving.scheme} ({type(error).__name__})"
    is_ours = "urn:thermocline:error" in text or (answer.is_success and '"tables"' in text)
    return None if is_ours else f"another program answers {answer.status_code}"


def _is_free(host: str, number: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError:
            return False
        return True


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        number: int = probe.getsockname()[1]
        return number


def _master_cores(master: str) -> int | None:
    """The cores of an engine on this machine; None where it is elsewhere."""
    match = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\d+)?\])?", master)
    if match is None:
        return None
    if match[1] == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(match[1] or 1)


def _multiple(buckets: int, cores: int) -> int:
    """The least multiple that is enough: buckets can be altered to no other numbers."""
    return buckets * -(-cores // buckets)


def _driver_bytes(settings: Settings) -> int:
    match = re.fullmatch(
        r"(?i)(\d+)([bkmgt]?)b?", settings.spark.conf.get("spark.driver.memory", "1g").strip()
    )
    return int(match[1]) * _SIZES[match[2].lower()] if match else DRIVER_BYTES
