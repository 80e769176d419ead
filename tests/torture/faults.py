"""Brings a fault about, and takes it back when its time is over."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from tests.http_proxy import OF_A_CATALOG, OF_A_STORE, HttpProxy, NoWrites, RandomFaults, Request
from tests.http_proxy import Fault as Spoilt
from tests.lake import ProxiedLake
from tests.torture.armed import Armed
from tests.torture.disks import NEARLY_FULL_KB, Disk
from tests.torture.ledger import Ledger
from tests.torture.plan import Fault
from tests.torture.supervisor import Running, Supervisor, descendants, tailer_pid
from tests.torture.traffic import Traffic
from thermocline.dev.stack import TABLE, TOPIC, Stack

PARTITIONS_MAX: Final = 9
REQUEST_SECONDS_MAX: Final = 30.0
BURST: Final = 3  # times the usual rate
SPOILT_SHARE: Final = 0.3  # of the requests to a store or a catalog that fails now and then
# A process that is told to stop finishes what is under way.
STOP_SECONDS_MAX: Final = 60.0

Heal = Callable[[], None]
T = TypeVar("T")


@dataclass(slots=True)
class Site:
    """What there is to break."""

    stack: Stack
    supervisor: Supervisor
    traffic: Traffic
    ledger: Ledger
    partitions: int
    disks: dict[str, Disk] = field(default_factory=dict)
    ingest_points: Armed | None = None
    serve_points: Armed | None = None
    lake: ProxiedLake | None = None


class Faults:
    """Begins faults. ``begun`` counts them by kind, ``missed`` those that found nothing to break."""

    def __init__(self, site: Site) -> None:
        self.begun: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.points: Counter[str] = Counter()
        self._site = site
        self._transactions = 0
        self._spoilt: set[HttpProxy] = set()
        self._broker = threading.Lock()

    def begin(self, fault: Fault) -> Heal | None:
        """Brings it about; what takes it back, if anything does. Raises nothing that a fault explains."""
        try:
            heal = self.by_kind[fault.kind](self, fault)
        except (ProcessLookupError, psutil.NoSuchProcess, NothingThere):
            self.missed[fault.kind] += 1
            return None
        self.begun[fault.kind] += 1
        return heal

    # Processes of ingest.

    def _kill_owner(self, fault: Fault) -> None:
        os.kill(self._owner().pid, signal.SIGKILL)

    def _kill_owner_whole(self, fault: Fault) -> None:
        os.killpg(self._owner().pid, signal.SIGKILL)

    def _freeze_owner(self, fault: Fault) -> Heal:
        return _freeze_group(self._owner().pid)

    def _freeze_and_replace(self, fault: Fault) -> Heal:
        heal = _freeze_group(self._owner().pid)
        self._site.supervisor.start_owner()
        return heal

    def _second_owner(self, fault: Fault) -> None:
        self._owner()
        self._site.supervisor.start_owner()

    def _stop_owner(self, fault: Fault) -> None:
        self._owner().command.process.send_signal(signal.SIGTERM)

    def _kill_jvm(self, fault: Fault) -> None:
        self._one_of(fault, [one for one in self._below_owner() if one.name() == "java"]).kill()

    def _kill_python_worker(self, fault: Fault) -> None:
        self._one_of(
            fault, [one for one in self._below_owner() if "pyspark" in " ".join(one.cmdline())]
        ).kill()

    # Processes of serving.

    def _kill_tailer(self, fault: Fault) -> None:
        self._tailer().kill()

    def _freeze_tailer(self, fault: Fault) -> Heal:
        return _freeze(self._tailer())

    def _kill_worker(self, fault: Fault) -> None:
        self._one_of(fault, self._workers()).kill()

    def _freeze_worker(self, fault: Fault) -> Heal:
        return _freeze(self._one_of(fault, self._workers()))

    def _kill_server(self, fault: Fault) -> None:
        os.kill(self._server().pid, signal.SIGKILL)

    def _kill_server_whole(self, fault: Fault) -> None:
        os.killpg(self._server().pid, signal.SIGKILL)

    def _stop_server(self, fault: Fault) -> None:
        self._server().command.process.send_signal(signal.SIGTERM)

    # What both stand on.

    def _kill_broker(self, fault: Fault) -> Heal:
        kafka = self._site.stack.kafka
        if kafka.pid is None or not self._broker.acquire(blocking=False):
            raise NothingThere
        kafka.kill()

        def heal() -> None:
            kafka.start()
            kafka.wait()
            self._broker.release()

        return heal

    def _freeze_broker(self, fault: Fault) -> Heal:
        pid = self._site.stack.kafka.pid
        if pid is None or not self._broker.acquire(blocking=False):
            raise NothingThere
        thaw = _freeze(psutil.Process(pid))

        def heal() -> None:
            thaw()
            self._broker.release()

        return heal

    def _lock_catalog(self, fault: Fault) -> Heal:
        path = self._site.stack.folder / "data" / "catalog.db"
        # Autocommit, so that BEGIN is ours; from any thread, since another may end it.
        database = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        try:
            database.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            database.close()
            raise NothingThere from None

        def heal() -> None:
            with suppress(sqlite3.OperationalError):
                database.execute("ROLLBACK")
            database.close()

        return heal

    def _spoil_store(self, fault: Fault) -> Heal:
        return self._spoil(self._lake().store, _now_and_then(fault, OF_A_STORE))

    def _spoil_catalog(self, fault: Fault) -> Heal:
        return self._spoil(self._lake().catalog, _now_and_then(fault, OF_A_CATALOG))

    def _fill_store(self, fault: Fault) -> Heal:
        # Some of what is written still finds room, so that it breaks off anywhere.
        return self._spoil(self._lake().store, NoWrites(after=int(fault.choice * 20)))

    def _slow_store_down(self, fault: Fault) -> Heal:
        return self._spoil(self._lake().store, lambda _: Spoilt.BUSY)

    def _freeze_store(self, fault: Fault) -> Heal:
        return _freeze(psutil.Process(_there(self._lake().store_pid)))

    def _store_away(self, fault: Fault) -> Heal:
        return self._away(self._lake().store)

    def _catalog_away(self, fault: Fault) -> Heal:
        return self._away(self._lake().catalog)

    def _fill_warehouse(self, fault: Fault) -> Heal:
        # Some of what a batch writes still finds room, so that it breaks off anywhere.
        return self._fill("warehouse", int(fault.choice * 200))

    def _fill_server(self, fault: Fault) -> Heal:
        return self._fill("serving", int(fault.choice * 400))

    def _nearly_fill_server(self, fault: Fault) -> Heal:
        return self._fill("serving", NEARLY_FULL_KB)

    def _remove_hot_tier(self, fault: Fault) -> None:
        shutil.rmtree(self._hot, ignore_errors=True)

    def _remove_hot_tier_while_down(self, fault: Fault) -> None:
        server = self._server()
        self._site.supervisor.hold_down("serve")
        try:
            group = [psutil.Process(server.pid), *descendants(server.pid)]
            os.killpg(server.pid, signal.SIGKILL)
            psutil.wait_procs(group, timeout=STOP_SECONDS_MAX)
            shutil.rmtree(self._hot, ignore_errors=True)
        finally:
            self._site.supervisor.let_up("serve")

    def _add_partitions(self, fault: Fault) -> None:
        if self._site.partitions >= PARTITIONS_MAX or not self._broker.acquire(blocking=False):
            raise NothingThere
        total = self._site.partitions + 1
        admin = AdminClient(self._site.stack.settings.kafka.client_config())
        try:
            done = admin.create_partitions([NewPartitions(TOPIC, total)], request_timeout=REQUEST_SECONDS_MAX)
            done[TOPIC].result(REQUEST_SECONDS_MAX)
        except KafkaException as error:
            raise NothingThere from error
        finally:
            self._broker.release()
        self._site.partitions = total
        self._site.ledger.grow(total)
        self._site.traffic.grow(total)

    def _leave_and_commit(self, fault: Fault) -> Heal:
        return self._transaction(True)

    def _leave_and_abort(self, fault: Fault) -> Heal:
        return self._transaction(False)

    def _burst(self, fault: Fault) -> Heal:
        traffic = self._site.traffic
        traffic.rate *= BURST

        def heal() -> None:
            traffic.rate //= BURST

        return heal

    # Places in the code.

    def _arm_ingest(self, fault: Fault) -> Heal:
        return self._arm(self._site.ingest_points, fault)

    def _arm_serving(self, fault: Fault) -> Heal:
        return self._arm(self._site.serve_points, fault)

    def _skew(self, fault: Fault) -> Heal:
        points = self._site.ingest_points if fault.choice < 0.5 else self._site.serve_points
        if points is None:
            raise NothingThere
        points.skew((fault.choice * 2 % 1 - 0.5) * 2)
        return points.unskew

    def _arm(self, points: Armed | None, fault: Fault) -> Heal:
        if points is None:
            raise NothingThere
        entry = points.arm(fault.choice)

        def heal() -> None:
            name = "{}={}".format(*entry)
            self.points[name if points.disarm(entry) else f"{name} (not reached)"] += 1

        return heal

    # What the above need.

    @property
    def _hot(self) -> Path:
        return self._site.stack.settings.serving.state_dir / TABLE / "hot"

    def _owner(self) -> Running:
        return _there(self._site.supervisor.owner)

    def _server(self) -> Running:
        return _there(self._site.supervisor.server)

    def _below_owner(self) -> list[psutil.Process]:
        return descendants(self._owner().pid)

    def _tailer(self) -> psutil.Process:
        pid = tailer_pid(self._site.stack.settings)
        return _there(next((one for one in descendants(self._server().pid) if one.pid == pid), None))

    def _workers(self) -> list[psutil.Process]:
        below = descendants(self._server().pid)
        return [one for one in below if " ".join(one.cmdline()).startswith("thermocline: api ")]

    def _one_of(self, fault: Fault, processes: list[psutil.Process]) -> psutil.Process:
        if not processes:
            raise NothingThere
        return processes[int(fault.choice * len(processes))]

    def _lake(self) -> ProxiedLake:
        return _there(self._site.lake)

    def _spoil(self, proxy: HttpProxy, decide: Callable[[Request], Spoilt | None]) -> Heal:
        if proxy in self._spoilt:
            raise NothingThere
        self._spoilt.add(proxy)
        before, proxy.decide = proxy.decide, decide

        def heal() -> None:
            proxy.decide = before
            self._spoilt.discard(proxy)
            proxy.deliver_late()

        return heal

    def _away(self, proxy: HttpProxy) -> Heal:
        if proxy.is_away:
            raise NothingThere
        proxy.is_away = True

        def heal() -> None:
            proxy.is_away = False

        return heal

    def _fill(self, name: str, free_kb: int) -> Heal:
        disk = self._site.disks.get(name)
        if disk is None:
            raise NothingThere
        disk.fill(free_kb)
        return disk.empty

    def _transaction(self, is_committed: bool) -> Heal:
        self._transactions += 1
        try:
            transaction = self._site.traffic.open_transaction(self._transactions)
        except KafkaException as error:
            raise NothingThere from error
        return lambda: transaction.end(is_committed)

    by_kind: Final[dict[str, Callable[[Faults, Fault], Heal | None]]] = {
        "owner killed": _kill_owner,
        "owner and all its processes killed": _kill_owner_whole,
        "owner frozen": _freeze_owner,
        "owner frozen, another takes over": _freeze_and_replace,
        "second owner beside the first": _second_owner,
        "owner told to stop": _stop_owner,
        "Spark's JVM killed": _kill_jvm,
        "a Spark Python worker killed": _kill_python_worker,
        "tailer killed": _kill_tailer,
        "tailer frozen": _freeze_tailer,
        "API worker killed": _kill_worker,
        "API worker frozen": _freeze_worker,
        "server's parent killed": _kill_server,
        "server and all its processes killed": _kill_server_whole,
        "server told to stop": _stop_server,
        "broker killed": _kill_broker,
        "broker frozen": _freeze_broker,
        "catalog locked": _lock_catalog,
        "warehouse's disk full": _fill_warehouse,
        "server's disk full": _fill_server,
        "server's disk nearly full": _nearly_fill_server,
        "hot tier removed": _remove_hot_tier,
        "hot tier removed while the server is down": _remove_hot_tier_while_down,
        "partitions added": _add_partitions,
        "transaction left open, then committed": _leave_and_commit,
        "transaction left open, then aborted": _leave_and_abort,
        "burst of records": _burst,
        "failpoint in ingest": _arm_ingest,
        "failpoint in serving": _arm_serving,
        "clocks apart": _skew,
        "store fails now and then": _spoil_store,
        "store away": _store_away,
        "store full": _fill_store,
        "store frozen": _freeze_store,
        "store busy": _slow_store_down,
        "REST catalog fails now and then": _spoil_catalog,
        "REST catalog away": _catalog_away,
    }


class NothingThere(Exception):
    """What a fault would break is not running, or is broken already."""


def _there(found: T | None) -> T:
    if found is None:
        raise NothingThere
    return found


def _now_and_then(fault: Fault, faults: Sequence[Spoilt]) -> RandomFaults:
    return RandomFaults(int(fault.choice * 1e6), SPOILT_SHARE, faults)


def _freeze(process: psutil.Process) -> Heal:
    process.suspend()

    def heal() -> None:
        with suppress(psutil.NoSuchProcess):
            process.resume()

    return heal


def _freeze_group(pid: int) -> Heal:
    os.killpg(pid, signal.SIGSTOP)

    def heal() -> None:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGCONT)

    return heal
