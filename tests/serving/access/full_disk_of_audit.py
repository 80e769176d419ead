"""An audit log on a disk that is filled and freed, as a process of its own: ``test_audit_file`` runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.serving.access.audit_parts import access, lines_of, wait_for
from tests.torture.disks import Disk, enter_namespace
from thermocline.errors import AuditUnavailable
from thermocline.serving.access import audit
from thermocline.serving.access.audit import AuditLog
from thermocline.serving.access.audit_file import FileSink
from thermocline.serving.access.entity_hash import EntityHash

NOT_PERMITTED: Final = 77
REQUESTS: Final = 500


def main(folder: Path) -> int:
    """Requests before, while and after it takes nothing; each is told of once, in order."""
    if not enter_namespace():
        return NOT_PERMITTED
    audit.FLUSH_SECONDS = audit.RETRY_SECONDS = 0.01  # type: ignore[misc]
    disk = Disk(folder)
    _mount(folder, "ro")
    sink = FileSink(folder / "audit", 1_000_000, 100)
    log = AuditLog(sink, EntityHash(bytes(32)), is_required=True)
    numbers = count()

    def ask() -> None:
        for _ in range(REQUESTS):
            log.write(access(next(numbers)))

    def written() -> list[str]:
        return [json.loads(line)["request_id"] for line in lines_of(folder / "audit")]

    ask()
    _say_what_is_wrong(log)
    assert written() == []
    _mount(folder, "rw")
    wait_for(lambda: len(written()) == REQUESTS)
    disk.fill()
    ask()
    _say_what_is_wrong(log)
    assert len(written()) < 2 * REQUESTS
    disk.empty()
    wait_for(lambda: log.problem() is None)
    log.check()
    ask()
    log.close()
    assert written() == [f"r{number}" for number in range(3 * REQUESTS)]
    disk.close(keep=False)
    return 0


def _say_what_is_wrong(log: AuditLog) -> None:
    wait_for(lambda: log.problem() is not None)
    print(log.problem())
    with pytest.raises(AuditUnavailable):
        log.check()


def _mount(folder: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
