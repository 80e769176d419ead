"""The tailers of several tables in one process: a thread each, and one Kafka client for all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from thermocline.errors import ThermoclineError
from thermocline.kafka.log import Log
from thermocline.kafka.shared_tail import SharedConsumer
from thermocline.process.clock import SystemClock
from thermocline.process.logs import fields
from thermocline.serving.store.back_off import BackOff
from thermocline.serving.tail.run import Together, run_tailer
from thermocline.serving.tail.tailer_status import forget_status

if TYPE_CHECKING:
    from thermocline.settings import Settings

__all__ = ["run_tailers"]

# How often it is looked at whether the shared consumer goes on.
WATCH_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


def run_tailers(settings: Settings, names: Sequence[str], stop: threading.Event) -> None:
    """Tails the tables until told to stop; one alone in this thread.

    Of several, one that fails is started again by itself. Raises what `run_tailer` raises for one alone, and
    RuntimeError where the client that they share has ended.
    """
    if len(names) == 1:
        forget_status(settings.serving.state_dir / names[0])
        run_tailer(settings, names[0], stop)
        return
    shared = SharedConsumer(settings.kafka.client_config(), SystemClock())
    together = Together(shared, Log(settings.kafka), len(names))
    threads = [
        threading.Thread(target=_keep_tailing, args=(settings, name, stop, together), name=name)
        for name in names
    ]
    for thread in threads:
        thread.start()
    try:
        while not stop.wait(WATCH_SECONDS):
            if not shared.is_running:
                raise RuntimeError("the shared consumer has ended")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        shared.close()


def _keep_tailing(settings: Settings, name: str, stop: threading.Event, together: Together) -> None:
    clock, back_off = SystemClock(), BackOff()
    while not stop.is_set():
        forget_status(settings.serving.state_dir / name)
        began_at = clock.monotonic()
        try:
            run_tailer(settings, name, stop, together)
        except ThermoclineError as error:
            log.error(  # noqa: TRY400  # it says itself what happened
                "tailer failed", extra=fields(table=name, code=error.code, detail=error.what, next=error.next)
            )
        except Exception:
            log.exception("tailer failed", extra=fields(table=name))
        stop.wait(back_off.after(clock.monotonic() - began_at))
