"""Lookups with and without access control: what a key, a token, a scope, TLS and the audit log cost each.

By turns over servers that differ in nothing else, all rows in memory: the short way of a lookup.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from benchmarks._load import ClientTls, client
from benchmarks._report import report, say
from benchmarks._table import filled
from benchmarks.lookup import load_of, users_of
from tests.certificates import Authority
from thermocline.dev.stack import Stack
from thermocline.serving.access.clients_edit import Granted, add_key

CONNECTIONS: Final = 8
ISSUER, AUDIENCE = "https://login.example.com/", "thermocline"
EVERYTHING: Final = ("lookup", "extract", "changes", "jobs", "catalog", "admin")


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        filled(Path(folder), options.rows, options.seed, workers=2, engine="local") as stack,
    ):
        # Of one app: a scope lets through what is asked for.
        users = [user for user in users_of(options.seed, options.rows) if user[0] == 1][:2_000]
        servers = _servers(stack)
        found: dict[str, list[dict[str, float]]] = {}
        for number in range(options.rounds):
            for server in servers:
                say(f"round {number + 1}, {server.name}")
                with _served(stack, server):
                    load_of(stack, users, CONNECTIONS, 2.0, tls=server.tls)
                    for asker in server.askers:
                        asked = load_of(
                            stack, users, CONNECTIONS, options.seconds, key=asker.key, tls=asker.tls
                        )
                        found.setdefault(f"{server.name}_{asker.name}", []).append(asked)
    figures: dict[str, Any] = {"rows": options.rows, "client": client()}
    for name, rounds in found.items():
        figures[name] = {
            what: median(one[what] for one in rounds) for what in ("p50_ms", "per_second", "server_cpu_us")
        }
    report("access", options.seed, figures)


@dataclass(frozen=True)
class _Asker:
    """What somebody brings."""

    name: str
    key: str | None = None
    tls: ClientTls | None = None


@dataclass(frozen=True)
class _Server:
    """A server with these variables, and who asks it; ``tls`` reaches it."""

    name: str
    environment: dict[str, str]
    askers: tuple[_Asker, ...]
    tls: ClientTls | None = None


def _servers(stack: Stack) -> tuple[_Server, ...]:
    file, now = stack.folder / "clients.toml", datetime.now(UTC)
    add_key(file, "anonymous", [Granted("*", EVERYTHING, None, {})], None, now)
    whole = add_key(file, "whole", [Granted("*", ("lookup",), None, {})], None, now)
    part = add_key(file, "part", [Granted("*", ("lookup",), None, {"app_id": "1"})], None, now)
    assert whole is not None
    assert part is not None
    authority = Authority(stack.folder / "authority")
    own, shown = authority.issue(), authority.issue("batch", names=["batch.internal"])
    with file.open("a") as clients:
        clients.write('\n[clients.batch]\ncertificates = ["dns:batch.internal"]\n')
        clients.write('[clients.batch.tables."*"]\nverbs = ["lookup"]\n')
    anybody, key = _Asker("anybody"), _Asker("key", whole.text)
    token = _Asker("token", _token(stack, file, now))
    askers = (anybody, key, _Asker("key_with_scope", part.text), token)
    clients_file = {"THERMOCLINE_SERVING__CLIENTS_FILE": str(file)}
    audit = {
        "THERMOCLINE_AUDIT__SINK": "file",
        "THERMOCLINE_AUDIT__PATH": str(stack.folder / "audit"),
        "THERMOCLINE_AUDIT__HASH_KEY_FILE": str(stack.folder / "audit.key"),
    }
    tls = {
        "THERMOCLINE_SERVING__TLS_CERTIFICATE": str(own.certificate),
        "THERMOCLINE_SERVING__TLS_KEY": str(own.key),
        "THERMOCLINE_SERVING__TLS_CLIENT_CA": str(authority.file),
    }
    verifying, showing = ClientTls(authority.file), ClientTls(authority.file, shown.paths)
    over_tls = (
        _Asker("anybody", tls=verifying),
        _Asker("key", whole.text, verifying),
        _Asker("certificate", tls=showing),
    )
    return (
        _Server("open", {}, (anybody,)),
        _Server("clients", clients_file, askers),
        _Server("audited", {**clients_file, **audit}, askers),
        _Server("tls", {**clients_file, **tls}, over_tls, verifying),
    )


def _token(stack: Stack, file: Path, now: datetime) -> str:
    """A token of an issuer whose keys are in a file; verified once by each worker, and known again then."""
    signing = rsa.generate_private_key(65537, 2048)
    keys = {**RSAAlgorithm.to_jwk(signing.public_key(), as_dict=True), "kid": "k1", "use": "sig"}
    jwks = stack.folder / "jwks.json"
    jwks.write_text(json.dumps({"keys": [keys]}))
    said = {"issuer": ISSUER, "audience": AUDIENCE, "jwks_file": str(jwks)}
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in said.items())
    with file.open("a") as clients:
        clients.write(f"\n[issuers.company]\n{lines}\n")
        clients.write('[clients.people]\nissuer = "company"\n')
        clients.write('[clients.people.tables."*"]\nverbs = ["lookup"]\n')
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now + timedelta(hours=8)}
    return jwt.encode(claims, signing, "RS256", {"kid": "k1"})


@contextmanager
def _served(stack: Stack, server: _Server) -> Iterator[None]:
    running = stack.command("serve", "serve", environment=server.environment)
    try:
        stack.wait_until_ready(running, None if server.tls is None else server.tls.context())
        yield
    finally:
        running.stop()


if __name__ == "__main__":
    main()
