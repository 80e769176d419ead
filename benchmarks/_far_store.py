"""An S3 store with a REST catalog, both on this machine, and a proxy that makes the store far away."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from tests.http_proxy import HttpProxy
from thermocline.dev.rest_catalog import LocalRestCatalog
from thermocline.dev.s3 import LocalS3


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of a store, of which ``puts`` were to keep something, and the bytes that it answered."""

    requests: int
    bytes: int
    puts: int

    def each(self, count: int) -> dict[str, float]:
        """Of one of so many."""
        return {
            "requests_each": round(self.requests / count, 2),
            "kb_each": round(self.bytes / count / 1000, 1),
        }


@dataclass(frozen=True, slots=True)
class FarStore:
    """The catalog's address, and the properties by which its clients ask the store through the proxy."""

    url: str
    properties: dict[str, str]
    _proxy: Connection

    def delay(self, seconds: float) -> None:
        """From now on, each request waits for so long before it is sent on."""
        self._proxy.send(seconds)
        self._proxy.recv()

    def asked(self) -> Asked:
        """Since this was called last."""
        self._proxy.send(None)
        return Asked(*self._proxy.recv())


@contextmanager
def far_store(folder: Path) -> Iterator[FarStore]:
    """Runs all three; the proxy is a process of its own, which takes nothing from who asks."""
    spawned = multiprocessing.get_context("spawn")
    with LocalS3(folder / "s3") as store, LocalRestCatalog(folder / "rest", store) as catalog:
        ours, theirs = spawned.Pipe()
        proxy = spawned.Process(target=_proxy, args=(store.port, theirs), daemon=True)
        proxy.start()
        properties = {**catalog.properties, "s3.endpoint": ours.recv()}
        try:
            yield FarStore(catalog.url, properties, ours)
        finally:
            proxy.kill()
            proxy.join()


def _proxy(port: int, told: Connection) -> None:
    with HttpProxy(port) as proxy:
        told.send(proxy.url)
        while True:
            seconds = told.recv()
            if seconds is not None:
                proxy.latency_seconds = seconds
            exchanges, proxy.exchanges = proxy.exchanges, []
            puts = sum(one.request.method in ("PUT", "POST") for one in exchanges)
            told.send((len(exchanges), sum(one.body_bytes for one in exchanges), puts))
