"""Keeps ingest and the server running, as a supervisor of theirs would, and remembers how each one ended."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from tests.torture.judge import Findings
from thermocline.dev.stack import TABLE, Command, Stack
from thermocline.errors import ExitCode
from thermocline.settings import Settings

WATCH_SECONDS: Final = 0.2
BACK_OFF_SECONDS: Final = 0.5
# How a process may end when something around it breaks. Anything else is a bug, or a stop for no reason.
EXITS: Final = {
    int(ExitCode.DONE): "told to stop",
    int(ExitCode.UNAVAILABLE): "a part was unavailable",
    int(ExitCode.COMMIT_UNKNOWN): "commit unknown",
    int(ExitCode.NOT_OWNER): "another owner",
    -signal.SIGKILL: "killed",
    -signal.SIGTERM: "told to stop before it had begun",
    # A disk without room kills who writes to a file mapped into memory.
    -signal.SIGBUS: "killed by a full disk",
}
CHILD_DIED: Final = "process died and is started again"
PORT_TAKEN: Final = "port-taken"  # the processes of a server that was killed let go a moment later


@dataclass(slots=True)
class Running:
    """A command that is to run."""

    role: str
    command: Command

    @property
    def pid(self) -> int:
        return self.command.process.pid

    def ended(self) -> int | None:
        return self.command.process.poll()


class Supervisor:
    """Starts one owner and one server, and others in the place of those that end."""

    def __init__(
        self, stack: Stack, findings: Findings, environments: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.exits: Counter[str] = Counter()
        self.starts: Counter[str] = Counter()
        self.upkeep: Counter[str] = Counter()
        self._stack = stack
        self._findings = findings
        self._environments = environments
        self._owners: list[Running] = []
        self._server: Running | None = None
        self._held_down: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Begins to start and to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Ends all with SIGTERM."""
        self._stop.set()
        self._thread.join()
        with self._lock:
            running = [*self._owners, *([self._server] if self._server else [])]
            for one in running:
                one.command.tell_to_stop()
            for one in running:
                self._note(one, one.command.stop())
            self._owners, self._server = [], None

    @property
    def owner(self) -> Running | None:
        """The owner that was started first."""
        with self._lock:
            return self._owners[0] if self._owners else None

    @property
    def server(self) -> Running | None:
        return self._server

    def start_owner(self) -> Running:
        """One more, beside those that are there."""
        with self._lock:
            started = self._start("ingest", "ingest", "run", TABLE)
            self._owners.append(started)
            return started

    def hold_down(self, role: str) -> None:
        """What ends now is not started again before `let_up`."""
        self._held_down.add(role)

    def let_up(self, role: str) -> None:
        self._held_down.discard(role)

    def _run(self) -> None:
        while not self._stop.wait(WATCH_SECONDS):
            with self._lock:
                self._tend()

    def _tend(self) -> None:
        for owner in list(self._owners):
            if (code := owner.ended()) is not None:
                self._owners.remove(owner)
                self._note(owner, code)
        if self._server is not None and (code := self._server.ended()) is not None:
            self._note(self._server, code)
            self._server = None
        if not self._owners and self._may_start("ingest"):
            self._owners.append(self._start("ingest", "ingest", "run", TABLE))
        if self._server is None and self._may_start("serve"):
            self._server = self._start("serve", "serve")

    def _may_start(self, role: str) -> bool:
        return role not in self._held_down and time.monotonic() >= self._not_before.get(role, 0)

    def _start(self, role: str, *arguments: str) -> Running:
        self.starts[role] += 1
        name = f"{role}-{self.starts[role]:03d}"
        return Running(role, self._stack.command(name, *arguments, environment=self._environments.get(role)))

    def _note(self, one: Running, code: int) -> None:
        self._not_before[one.role] = time.monotonic() + BACK_OFF_SECONDS
        one.command.kill()  # it has ended: this frees what watched it
        said = last_error(one.command.log_path)
        error = str(said.get("code", ""))
        self.exits[f"{one.role}: {error or EXITS.get(code, code)}"] += 1
        if code not in EXITS and error != PORT_TAKEN:
            what = f"{one.role} ended with {code} {error}: {said.get('what', '')}, see {one.command.log_path}"
            self._findings.add_unforeseen(f"{one.role} ended in no way known", what)
        if one.role == "serve":
            self._note_children(one.command.log_path)
        else:
            self.upkeep += upkeep_in(one.command.log_path)

    def _note_children(self, log_path: Path) -> None:
        """How the processes of a server ended that it started again."""
        for line in log_path.read_text(errors="replace").splitlines():
            if CHILD_DIED not in line:
                continue
            said = json.loads(line)
            name, code = str(said["process"]).split()[0], int(said["exit_code"])
            self.exits[f"serve's {name}: {EXITS.get(code, code)}"] += 1
            if code not in EXITS:
                what = f"serve's {name} ended with {code}, see {log_path}"
                self._findings.add_unforeseen(f"serve's {name} ended in no way known", what)


def last_error(log_path: Path) -> Mapping[str, Any]:
    """What a command said when it failed; empty where it did not."""
    found: Mapping[str, Any] = {}
    for line in log_path.read_text(errors="replace").splitlines():
        if '"command failed"' in line:
            with suppress(ValueError):
                found = json.loads(line)
    return found


def upkeep_in(log_path: Path) -> Counter[str]:
    """What maintenance says in a log that it has done."""
    found: Counter[str] = Counter()
    for line in log_path.read_text(errors="replace").splitlines():
        with suppress(ValueError):
            said = json.loads(line)
            match said.get("message"):
                case "compacted":
                    found["rewrites"] += 1
                    found["rewrites that deletes followed"] += bool(said["late_deletes"])
                case "snapshots expired":
                    found["expiries"] += 1
                    found["snapshots expired"] += said["expired"]
                case "swept":
                    found["sweeps"] += 1
                    found["files swept"] += said["deleted_files"]
                case "maintenance will try again":
                    found[f"{said['what']} failed"] += 1
    return +found


def descendants(pid: int) -> list[psutil.Process]:
    """The processes below one; none where it is gone."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def tailer_pid(settings: Settings) -> int | None:
    """The process that last said that it is the tailer; None where none did."""
    try:
        return int(json.loads((settings.serving.state_dir / TABLE / "tailer.json").read_bytes())["pid"])
    except (OSError, ValueError, KeyError):
        return None
