"""Lookups with and without access control: what a key, a token, a scope and the audit log cost each lookup.

By turns over servers that differ in nothing else, all rows in memory: the short way of a lookup.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from benchmarks._load import client
from benchmarks._report import report, say
from benchmarks._table import filled
from benchmarks.lookup import load_of, users_of
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
        keys = _keys(stack)
        found: dict[str, list[dict[str, float]]] = {}
        for number in range(options.rounds):
            for server, environment in _servers(stack).items():
                say(f"round {number + 1}, {server}")
                with _served(stack, environment):
                    load_of(stack, users, CONNECTIONS, 2.0)
                    for name, key in keys.items() if environment else (("anybody", None),):
                        asked = load_of(stack, users, CONNECTIONS, options.seconds, key=key)
                        found.setdefault(f"{server}_{name}", []).append(asked)
    figures: dict[str, Any] = {"rows": options.rows, "client": client()}
    for name, rounds in found.items():
        figures[name] = {
            what: median(one[what] for one in rounds) for what in ("p50_ms", "per_second", "server_cpu_us")
        }
    report("access", options.seed, figures)


def _keys(stack: Stack) -> dict[str, str | None]:
    """Keys by what they are for."""
    file, now = stack.folder / "clients.toml", datetime.now(UTC)
    add_key(file, "anonymous", [Granted("*", EVERYTHING, None, {})], None, now)
    whole = add_key(file, "whole", [Granted("*", ("lookup",), None, {})], None, now)
    part = add_key(file, "part", [Granted("*", ("lookup",), None, {"app_id": "1"})], None, now)
    assert whole is not None
    assert part is not None
    token = _token(stack, file, now)
    return {"anybody": None, "key": whole.text, "key_with_scope": part.text, "token": token}


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


def _servers(stack: Stack) -> dict[str, dict[str, str]]:
    """The variables of each."""
    clients = {"THERMOCLINE_SERVING__CLIENTS_FILE": str(stack.folder / "clients.toml")}
    audit = {
        "THERMOCLINE_AUDIT__SINK": "file",
        "THERMOCLINE_AUDIT__PATH": str(stack.folder / "audit"),
        "THERMOCLINE_AUDIT__HASH_KEY_FILE": str(stack.folder / "audit.key"),
    }
    return {"open": {}, "clients": clients, "audited": {**clients, **audit}}


@contextmanager
def _served(stack: Stack, environment: dict[str, str]) -> Iterator[None]:
    server = stack.command("serve", "serve", environment=environment)
    try:
        stack.wait_until_ready(server)
        yield
    finally:
        server.stop()


if __name__ == "__main__":
    main()
