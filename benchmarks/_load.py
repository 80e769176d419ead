"""The clients of `lookup`: one compiled from ``load*.go``, where there is Go, and a slower one in Python.

The compiled one takes a tenth of the processor, which client and server share, so its figures are higher.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks._report import percentiles_ms, say

AUTHORIZATION: Final = "LOAD_AUTHORIZATION"
CA, CERTIFICATE, CERTIFICATE_KEY = "LOAD_CA", "LOAD_CERTIFICATE", "LOAD_CERTIFICATE_KEY"
SOURCES: Final = sorted(Path(__file__).parent.glob("load*.go"))


@dataclass(frozen=True)
class ClientTls:
    """A client's side of TLS: the CA of the server, and the certificate and key that it shows, if any."""

    ca: Path
    shown: tuple[Path, Path] | None = None

    def context(self) -> ssl.SSLContext:
        """For a client in Python."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.shown is not None:
            context.load_cert_chain(*self.shown)
        return context

    def environment(self) -> dict[str, str]:
        """For the one in Go."""
        certificate, key = self.shown or ("", "")
        return {CA: str(self.ca), CERTIFICATE: str(certificate), CERTIFICATE_KEY: str(key)}


def client() -> str:
    """Which one it is."""
    return "python" if _compiled() is None else "go"


def ask_http(
    address: str,
    paths: Sequence[str],
    connections: int,
    seconds: float,
    authorization: str = "",
    tls: ClientTls | None = None,
) -> dict[str, float]:
    """The paths in their order over keep-alive connections, one request at a time each, for some seconds.

    ``authorization`` is a header that goes with each. With ``tls``, they go over TLS.
    """
    if _compiled() is not None:
        how = ("http", address, str(connections), str(seconds))
        more = {} if tls is None else tls.environment()
        return _run(*how, entities=paths, environment={AUTHORIZATION: authorization, **more})
    latencies = uvloop.run(_drive(address, paths, connections, seconds, authorization, tls))
    assert latencies, "no lookup succeeded"
    rate = round(len(latencies) / seconds)
    return {**percentiles_ms(latencies), "per_second": rate, "lookups": len(latencies)}


def overload_http(
    address: str, paths: Sequence[str], connections: int, seconds: float, rate: float
) -> dict[str, float]:
    """As `ask_http`, but so many a second, however long answers take; those ``refused`` are counted apart.

    By the compiled client alone.
    """
    return _run("overload", address, str(connections), str(seconds), str(rate), entities=paths)


def ask_postgres(
    address: str, statement: str, entities: Sequence[str], connections: int, seconds: float, prepares: bool
) -> dict[str, float]:
    """As `ask_http`, by a statement that it prepares; the parameters of an entity have tabs between them."""
    how = "postgres" if prepares else "unprepared"
    return _run(how, address, str(connections), str(seconds), statement, entities=entities)


def ask_cassandra(
    address: str, entities: Sequence[str], connections: int, seconds: float
) -> dict[str, float]:
    """As `ask_postgres`, of the table that `fill_cassandra` fills."""
    return _run("cassandra", address, str(connections), str(seconds), entities=entities)


def fill_cassandra(address: str, connections: int, rows: Iterable[str]) -> None:
    """Inserts rows, their columns with tabs between them."""
    program = _compiled()
    assert program is not None
    with subprocess.Popen(
        [program, "fill-cassandra", address, str(connections)], stdin=subprocess.PIPE, text=True
    ) as filling:
        assert filling.stdin is not None
        filling.stdin.writelines(f"{row}\n" for row in rows)
        filling.stdin.close()
        if filling.wait() != 0:
            raise subprocess.CalledProcessError(filling.returncode, "fill-cassandra")


def with_server_cpu(
    ask: Callable[[], dict[str, float]], cpu_seconds: Callable[[], float]
) -> dict[str, float]:
    """The figures, with the microseconds of the server that each lookup took, by what it has used so far."""
    before = cpu_seconds()
    figures = ask()
    spent = cpu_seconds() - before
    return {**figures, "server_cpu_us": round(spent / figures["lookups"] * 1e6, 1)}


def _run(
    *arguments: str, entities: Sequence[str], environment: Mapping[str, str] | None = None
) -> dict[str, float]:
    program = _compiled()
    assert program is not None
    done = subprocess.run(
        [program, *arguments],
        input="\n".join(entities),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


_folder = tempfile.TemporaryDirectory(prefix="thermocline-load-")


@cache
def _compiled() -> Path | None:
    """The client in Go; None without a Go that compiles it."""
    go, program = shutil.which("go"), Path(_folder.name) / "load"
    if go is not None:
        done = subprocess.run(
            [go, "build", "-o", program, *SOURCES], check=False, capture_output=True, text=True
        )
        if done.returncode == 0:
            return program
        say(done.stderr)
    say("no Go here: the client is in Python, and takes most of the processor itself")
    return None


async def _drive(
    address: str,
    paths: Sequence[str],
    connections: int,
    seconds: float,
    authorization: str,
    tls: ClientTls | None,
) -> list[float]:
    host, port = address.split(":")
    end = time.monotonic() + seconds
    said = f"Authorization: {authorization}\r\n" if authorization else ""
    latencies: list[list[float]] = [[] for _ in range(connections)]
    context = None if tls is None else tls.context()

    async def connection(number: int) -> None:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        position = number * len(paths) // connections
        while time.monotonic() < end:
            began = time.perf_counter()
            writer.write(f"GET {paths[position % len(paths)]} HTTP/1.1\r\nHost: x\r\n{said}\r\n".encode())
            position += 1
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body: Any = await reader.readexactly(length)
            latencies[number].append(time.perf_counter() - began)
            assert head.startswith(b"HTTP/1.1 200"), body
        writer.close()

    await asyncio.gather(*(connection(number) for number in range(connections)))
    return [latency for one in latencies for latency in one]
