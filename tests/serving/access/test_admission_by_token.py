"""Admission by tokens: a claim says which rows are seen, and a revoked signing key ends what it let in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.manual_clock import ManualClock
from tests.serving.access.audit_parts import wait_for
from tests.serving.access.signing import AUDIENCE, CLAIMS, ISSUER, NOW, jwk_of, rsa_key, token_of
from thermocline.errors import ConfigInvalid, TooManyRequests, Unauthenticated
from thermocline.serving.access.admission import Admission
from thermocline.serving.access.clients import read_clients
from thermocline.serving.access.clients_file import ClientsFile
from thermocline.serving.access.limits import RateLimits
from thermocline.serving.read.caller import Action, Caller, Credentials, Grant, Part

CLIENTS = f"""
[issuers.corp]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
jwks_file = "keys.json"
floor_seconds = 1
refresh_seconds = 1

[clients.admins]
issuer = "corp"
claims = {{ role = "admin" }}
[clients.admins.tables."*"]
verbs = ["admin"]

[clients.tenants]
issuer = "corp"
[clients.tenants.tables.profiles]
verbs = ["lookup"]
scope = {{ app_id = "claim:tenant" }}
"""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW * 1000)


@pytest.fixture
def admission(tmp_path: Path, clock: ManualClock) -> Iterator[Admission]:
    """With the keys of the issuer read."""
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk_of(rsa_key())]}))
    path = tmp_path / "clients.toml"
    path.write_text(CLIENTS)
    rates = RateLimits(tmp_path, 1, clock)
    made = Admission(ClientsFile(path), clock, rates)
    wait_for(lambda: _is_admitted(made, of(tenant=1)))
    yield made
    made.close()
    rates.close()


def of(key: Any = None, **claims: Any) -> Credentials:
    token = token_of({**CLAIMS, **claims}, key)
    return Credentials(f"Bearer {token}", address="192.0.2.1")


def _is_admitted(admission: Admission, credentials: Credentials) -> bool:
    with suppress(Unauthenticated):
        return isinstance(admission(credentials), Caller)
    return False


def test_a_claim_says_which_rows_are_seen(admission: Admission) -> None:
    for tenant, text in ((7, "7"), ("7", "7"), ("eight", "eight")):
        caller = admission(of(tenant=tenant))
        assert (caller.name, caller.key) == ("tenants/ada", "ada")
        part = Part(scope=(("app_id", text),))
        assert caller.grant("profiles") == Grant(frozenset({Action.LOOKUP}), part)


@pytest.mark.parametrize("tenant", [None, True, 1.5, ["7"], {"id": 7}])
def test_a_claim_that_is_no_text_or_number_gives_nothing(admission: Admission, tenant: Any) -> None:
    caller = admission(of(tenant=tenant)) if tenant is not None else admission(of())
    assert not caller.knows("profiles")


def test_the_first_client_whose_claims_fit_is_taken(admission: Admission) -> None:
    admins: tuple[Any, ...] = ("admin", ["reader", "admin"])
    for role in admins:
        assert admission(of(tenant=7, role=role)).name == "admins/ada"
    others: tuple[Any, ...] = ("reader", ["reader"], [["admin"]], True)
    for role in others:
        assert admission(of(tenant=7, role=role)).name == "tenants/ada"


def test_a_token_is_judged_once_and_ends_with_its_expiry(admission: Admission, clock: ManualClock) -> None:
    credentials = of(tenant=7)
    caller = admission(credentials)
    assert admission.recognised(credentials) is caller
    clock.advance(600 + 30 - 1)  # with the leeway
    assert admission.recognised(credentials) is caller
    clock.advance(1)
    assert admission.recognised(credentials) is None
    with pytest.raises(Unauthenticated, match="expired"):
        admission(credentials)


def test_who_was_let_in_by_a_key_that_is_revoked_is_not_let_in_again(
    admission: Admission, tmp_path: Path, clock: ManualClock
) -> None:
    credentials = of(tenant=7)
    assert admission(credentials) is admission.recognised(credentials)
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk_of(rsa_key(1))]}))

    def is_revoked() -> bool:
        clock.advance(1.0)
        return admission.recognised(credentials) is None

    wait_for(is_revoked)
    with pytest.raises((Unauthenticated, TooManyRequests)):
        admission(credentials)
    wait_for(lambda: _is_admitted(admission, of(rsa_key(1), tenant=7)))


def test_forged_tokens_slow_their_address_down(admission: Admission) -> None:
    forged = of(rsa_key(2), tenant=7)
    for _ in range(5):
        with pytest.raises(Unauthenticated):
            admission(forged)
    with pytest.raises(TooManyRequests):
        admission(forged)


def test_a_client_of_an_issuer_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "clients.toml"
    path.write_text(CLIENTS.replace("[issuers.corp]", "[issuers.other]"))
    with pytest.raises(ConfigInvalid) as raised:
        read_clients(path)
    assert "tenants names the issuer corp" in str(raised.value.problems)


def test_paths_are_from_where_the_clients_file_is(tmp_path: Path) -> None:
    path = tmp_path / "clients.toml"
    path.write_text(CLIENTS)
    assert read_clients(path).issuers["corp"].jwks_file == tmp_path / "keys.json"
