"""Tokens: what is verified, what is refused whoever made it, and what an issuer can do to nobody."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.manual_clock import ManualClock
from tests.serving.access.audit_parts import wait_for
from tests.serving.access.jwks_server import JwksServer, jwks_server
from tests.serving.access.signing import (
    AUDIENCE,
    CLAIMS,
    ISSUER,
    NOW,
    b64,
    claims_without,
    ec_key,
    ed_key,
    jwk_of,
    rsa_key,
    signature_of,
    signed_token,
    token_of,
)
from thermocline.errors import ConfigInvalid, Unauthenticated
from thermocline.serving.access import tokens
from thermocline.serving.access.tokens import Issuer, TokenVerifier, Verified

UNREADABLE = "the token can't be read"
NOT_VALID = "the signature of the token is not valid"
UNKNOWN_KEY = "the key of the token is not known"
ALGORITHM = "the token is not signed by an algorithm that is configured for its issuer"
EXPIRED = "the token has expired"
TOO_EARLY = "the token is not valid yet"
OTHER_AUDIENCE = "the token is for another audience"
OTHER_TYPE = "the token is of a type (typ) that is not taken from its issuer"
STRANGER = "the token is not of a known issuer"
KEYS_MISSING = "the keys of the token's issuer are not there yet"
HEADER, PAYLOAD = b'{"alg": "RS256", "kid": "k1"}', json.dumps(CLAIMS).encode()
PUBLIC = rsa_key().public_key()


def lacks(claim: str) -> str:
    return f"the token lacks the claim {claim}, or it is no time in seconds"


NO_SUBJECT = "the token lacks the claim sub, or it is no text"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW * 1000)


@pytest.fixture
def server() -> Iterator[JwksServer]:
    with jwks_server(
        jwk_of(rsa_key()), jwk_of(ec_key(), "e1"), jwk_of(rsa_key(1), "ps", alg="PS256")
    ) as running:
        yield running


def issuer(server: JwksServer, **more: Any) -> Issuer:
    facts = {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": server.url}
    return Issuer.model_validate({**facts, "algorithms": ["RS256", "ES256", "PS256"], **more})


@pytest.fixture
def verifier(server: JwksServer, clock: ManualClock) -> TokenVerifier:
    """With the keys of one issuer, ``corp``, and no threads."""
    made = TokenVerifier({"corp": issuer(server)}, clock)
    made.look()
    return made


def refusal(verifier: TokenVerifier, token: str) -> str:
    with pytest.raises(Unauthenticated) as raised:
        verifier.verify(token)
    assert raised.value.is_retryable == (raised.value.detail == KEYS_MISSING)
    return raised.value.detail


def with_part(token: str, number: int, part: str) -> str:
    parts = token.split(".")
    parts[number] = part
    return ".".join(parts)


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        *((f"{family}{bits}", rsa_key()) for family in ("RS", "PS") for bits in (256, 384, 512)),
        *(("ES256", ec_key()), ("ES384", ec_key("P-384")), ("ES512", ec_key("P-521"))),
        *(("EdDSA", ed_key("Ed25519")), ("EdDSA", ed_key("Ed448"))),
    ],
)
def test_a_token_of_the_issuer_says_who_asks(clock: ManualClock, algorithm: str, key: Any) -> None:
    with jwks_server(jwk_of(key)) as server:
        verifier = TokenVerifier({"corp": issuer(server, algorithms=[algorithm])}, clock)
        verifier.look()
    claims = {**CLAIMS, "groups": ["a", "b"]}
    found = verifier.verify(token_of(claims, key, algorithm))
    # Until ten minutes from now, and the leeway of 30 s.
    assert found == Verified("corp", "ada", claims, 1_700_000_630_000)
    with pytest.raises(TypeError):
        found.claims["sub"] = "bob"  # type: ignore[index]


def forged(signature: bytes, algorithm: str = "ES256", kid: str = "e1") -> str:
    header = json.dumps({"alg": algorithm, "kid": kid}).encode()
    return f"{b64(header)}.{b64(PAYLOAD)}.{b64(signature)}"


def der_signed() -> str:
    header = b'{"alg": "ES256", "kid": "e1"}'
    signed = f"{b64(header)}.{b64(PAYLOAD)}"
    return f"{signed}.{b64(ec_key().sign(signed.encode(), ec.ECDSA(SHA256())))}"


def unsigned(algorithm: str, signature: str = "") -> str:
    header = json.dumps({"alg": algorithm, "kid": "k1"}).encode()
    return f"{b64(header)}.{b64(PAYLOAD)}.{signature}"


GENUINE = token_of()
FORGED = {
    **{f"no algorithm: {name}": unsigned(name) for name in ("none", "None", "NONE", "nOnE", "")},
    **{f"no algorithm, with a signature: {name}": unsigned(name, "AAAA") for name in ("none", "nOnE", "")},
    "no algorithm, with the signature of a genuine one": unsigned("none", GENUINE.split(".")[2]),
    "the algorithm left out": signed_token(b'{"kid": "k1"}', PAYLOAD),
    "the algorithm no text": signed_token(b'{"alg": ["RS256"], "kid": "k1"}', PAYLOAD),
    "signed with the public key in PEM, as if it were a secret": token_of(
        key=PUBLIC.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), algorithm="HS256"
    ),
    "signed with the public key in DER": token_of(
        key=PUBLIC.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo), algorithm="HS256"
    ),
    "signed with the JWK": token_of(key=json.dumps(jwk_of(rsa_key())).encode(), algorithm="HS256"),
    "signed with the modulus": token_of(key=jwk_of(rsa_key())["n"].encode(), algorithm="HS256"),
    "signed by another key": token_of(key=rsa_key(2)),
    "signed by another key that it brings along": token_of(key=rsa_key(2), jwk=jwk_of(rsa_key(2))),
    "another key that it brings along, without a name": token_of(
        key=rsa_key(2), kid=None, jwk=jwk_of(rsa_key(2))
    ),
    "an algorithm that is not configured": token_of(algorithm="RS512"),
    "signed by PS256, said to be RS256": signed_token(HEADER, PAYLOAD, rsa_key(), "PS256"),
    "RS256 by the key for PS256": token_of(key=rsa_key(1), kid="ps"),
    "RS256 by the name of an elliptic key": token_of(kid="e1"),
    "ES256 by the name of an RSA key": token_of(key=ec_key(), algorithm="ES256", kid="k1"),
    "ES256 by a key on another curve": token_of(key=ec_key("P-384"), algorithm="ES256", kid="e1"),
    "ES256 as DER": der_signed(),
    "ES256 with zeros": forged(bytes(64)),
    "ES256 with a zero r": forged(bytes(63) + b"\x01"),
    "ES256 with the order of the curve": forged(
        bytes.fromhex("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551") * 2
    ),
    "ES256 too short": forged(bytes(3)),
    "RS256 with zeros": forged(bytes(256), "RS256", "k1"),
    "RS256 too long": with_part(GENUINE, 2, GENUINE.split(".")[2] + "AAAA"),
    "RS256 too short": with_part(GENUINE, 2, GENUINE.split(".")[2][:-4]),
    "the claims of another token": with_part(GENUINE, 1, token_of({**CLAIMS, "sub": "root"}).split(".")[1]),
    "the header of another token": with_part(GENUINE, 0, token_of(typ="JWT").split(".")[0]),
    **{
        f"kid {kid!r}": token_of(key=rsa_key(2), kid=kid)
        for kid in ("", "../k1", "k1\0", "K1", "' or 1=1", "k1 ")
    },
    **{f"kid {kid!r}": token_of(kid=kid) for kid in (7, True, ["k1"], {"k1": 1})},
    "crit": token_of(crit=["exp"]),
    "crit, empty": token_of(crit=[]),
    "payload that is not encoded": token_of(b64=False, crit=["b64"]),
}


@pytest.mark.parametrize("token", FORGED.values(), ids=FORGED)
def test_a_forged_token_admits_nobody(verifier: TokenVerifier, token: str) -> None:
    crit = "the token demands to be understood in a way that is not known here"
    for _ in range(2):
        assert refusal(verifier, token) in {NOT_VALID, UNKNOWN_KEY, ALGORITHM, UNREADABLE, crit}
    assert verifier.verify(GENUINE).subject == "ada"


@pytest.mark.parametrize("name", ["jku", "x5u"])
def test_a_token_cannot_say_where_its_key_is(verifier: TokenVerifier, server: JwksServer, name: str) -> None:
    with jwks_server(jwk_of(rsa_key(2))) as theirs:
        header: dict[str, Any] = {name: theirs.url}
        assert refusal(verifier, token_of(key=rsa_key(2), **header)) == NOT_VALID
        assert refusal(verifier, token_of(key=rsa_key(2), kid="k9", **header)) == UNKNOWN_KEY
        assert verifier.verify(token_of(**header)).subject == "ada", "it is not looked at"
        verifier.look()
        assert theirs.asked == []


def claims(**more: Any) -> dict[str, Any]:
    return {**CLAIMS, **more}


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        (claims_without("iss"), STRANGER),
        *(
            (claims(iss=other), STRANGER)
            for other in ("", "https://login.example.com", ISSUER + "x", None, [ISSUER])
        ),
        (claims_without("sub"), NO_SUBJECT),
        *((claims(sub=other), NO_SUBJECT) for other in ("", None, 7, ["ada"], {"ada": 1})),
        (claims_without("aud"), OTHER_AUDIENCE),
        *(
            (claims(aud=other), OTHER_AUDIENCE)
            for other in ("", "other", "thermocline ", None, 7, [], ["other"])
        ),
        (claims(aud={"thermocline": 1}), OTHER_AUDIENCE),
        (claims(aud=[["thermocline"]]), OTHER_AUDIENCE),
        (claims_without("exp"), lacks("exp")),
        *((claims(exp=other), lacks("exp")) for other in (None, "1700000600", True, [NOW + 600], -1)),
        (claims(exp=(NOW + 600) * 1000), lacks("exp")),
        (json.dumps(CLAIMS).replace(str(NOW + 600), "1e400").encode(), lacks("exp")),
        (json.dumps(CLAIMS).replace(str(NOW + 600), "9" * 4000).encode(), lacks("exp")),
        *((claims(exp=at), EXPIRED) for at in (0, NOW - 30, NOW - 30.5)),
        *((claims(nbf=at), TOO_EARLY) for at in (NOW + 31, NOW + 30.001)),
        *((claims(iat=at), TOO_EARLY) for at in (NOW + 31, NOW + 30.001)),
        *((claims(nbf=at), lacks("nbf")) for at in (None, "0", False)),
        *((claims(iat=at), lacks("iat")) for at in (None, "0", False)),
    ],
)
def test_a_genuine_token_without_the_right_claims_is_refused(
    verifier: TokenVerifier, said: object, detail: str
) -> None:
    assert refusal(verifier, token_of(said)) == detail


@pytest.mark.parametrize(
    "said",
    [
        claims(exp=NOW - 29.9),
        claims(nbf=NOW + 30, iat=NOW + 30),
        claims(aud=["other", "thermocline"]),
        claims(exp=NOW + 0.5),
        claims(exp=253_402_300_799),
    ],
)
def test_clocks_may_differ_by_the_leeway_and_a_token_may_have_several_audiences(
    verifier: TokenVerifier, said: Mapping[str, Any]
) -> None:
    assert verifier.verify(token_of(said)).subject == "ada"


@pytest.mark.parametrize(
    "said",
    [claims(exp=NOW - 600), claims(aud="other"), claims_without("sub"), claims(nbf=NOW + 600), claims()],
)
def test_a_forged_token_learns_nothing_of_the_checks_after_its_signature(
    verifier: TokenVerifier, said: Mapping[str, Any]
) -> None:
    assert refusal(verifier, token_of(said, rsa_key(2))) == NOT_VALID
    assert refusal(verifier, token_of(said, rsa_key(2), kid="k9")) == UNKNOWN_KEY


@pytest.mark.parametrize("audience", ["thermocline", "api://old", ["other", "api://old"]])
def test_a_token_is_for_one_of_several_audiences(
    server: JwksServer, clock: ManualClock, audience: object
) -> None:
    verifier = TokenVerifier({"corp": issuer(server, audience=["thermocline", "api://old"])}, clock)
    verifier.look()
    assert verifier.verify(token_of(claims(aud=audience))).subject == "ada"
    for other in ("api://", ["thermocline api://old"], "other"):
        assert refusal(verifier, token_of(claims(aud=other))) == OTHER_AUDIENCE


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "application/at+JWT", "application/jwt"])
def test_a_token_of_these_types_is_taken(verifier: TokenVerifier, typ: str) -> None:
    assert verifier.verify(token_of(typ=typ)).subject == "ada"


@pytest.mark.parametrize("typ", ["logout+jwt", "secevent+jwt", "dpop+jwt", "", "JWS", "x/jwt", 7, ["JWT"]])
def test_what_an_issuer_signed_to_another_end_is_no_token(verifier: TokenVerifier, typ: object) -> None:
    assert refusal(verifier, token_of(typ=typ)) == OTHER_TYPE
    assert refusal(verifier, token_of(key=rsa_key(2), typ=typ)) == NOT_VALID, "a forged one learns nothing"


def test_an_issuer_whose_types_are_configured_has_no_other_tokens_taken(
    server: JwksServer, clock: ManualClock
) -> None:
    verifier = TokenVerifier({"corp": issuer(server, types=["application/at+JWT", "Own"])}, clock)
    verifier.look()
    for typ in ("at+jwt", "own", "application/AT+jwt"):
        assert verifier.verify(token_of(typ=typ)).subject == "ada"
    for token in (token_of(), token_of(typ="JWT"), token_of(typ=None)):
        assert refusal(verifier, token) == OTHER_TYPE


TEXT = PAYLOAD.decode()


@pytest.mark.parametrize(
    "payload",
    [
        *(b"", b"{}x", b"null", b"[]", b"1", b'"ada"', f"[{TEXT}]".encode(), GENUINE.encode()),
        *(TEXT.encode("utf-16"), TEXT.encode("utf-8-sig"), TEXT.replace("ada", "ad\xe9").encode("latin-1")),
        TEXT.replace("{", '{"sub": "root", ').encode(),
        TEXT.replace("}", ', "exp": 1}').encode(),
        TEXT.replace("}", ', "scope": {"app": 1, "app": 2}}').encode(),
        TEXT.replace("}", ', "scope": [{"app": 1, "app": 1}]}').encode(),
        *(
            TEXT.replace("}", f', "x": {value}}}').encode()
            for value in ("NaN", "Infinity", "01", "'a'", "9" * 4400)
        ),
        TEXT.replace("ada", "\\ud800").encode(),
        TEXT.replace("}", ', "x": "\\udfff\\ud800"}').encode(),
        b"[" * 5_000,
        TEXT.replace("ada", "a\nda").encode(),
    ],
)
def test_a_genuine_payload_that_readers_may_understand_differently_is_refused(
    verifier: TokenVerifier, payload: bytes
) -> None:
    assert refusal(verifier, token_of(payload)) == UNREADABLE


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"[]", b"null", b"RS256", b'{"alg": "RS256", "kid": "k1"'),
        b'{"alg": "none", "kid": "k1", "alg": "RS256"}',
        b'{"alg": "RS256", "kid": "k9", "kid": "k1"}',
    ],
)
def test_a_header_that_readers_may_understand_differently_is_refused(
    verifier: TokenVerifier, header: bytes
) -> None:
    assert refusal(verifier, signed_token(header, PAYLOAD)) == UNREADABLE


def respelled(token: str) -> Iterator[str]:
    """The same bytes, encoded otherwise."""
    yield from (
        token + "=",
        token + "==",
        token + "\n",
        " " + token,
        token + " ",
        "\ufeff" + token,
        token + "\0",
    )
    header, payload, signature = token.split(".")
    yield f"{header}=.{payload}.{signature}"
    yield f"{header}.{payload}\n.{signature}"
    yield f"{header}.{payload[:4]} {payload[4:]}.{signature}"
    raw = base64.urlsafe_b64decode(signature + "==")
    assert b64(raw) == signature
    yield f"{header}.{payload}.{base64.b64encode(raw).decode()}"
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    loose = f"{signature[:-1]}{last[last.index(signature[-1]) + 1]}"
    assert base64.urlsafe_b64decode(loose + "==") == raw, "only bits differ that belong to no byte"
    yield f"{header}.{payload}.{loose}"
    yield f"{header}.{payload}.{signature[:-1]}"  # six bits too many for bytes, or two too few
    yield from (
        f"{token}.",
        f".{token}",
        f"{token}.{signature}",
        f"{header}.{payload}",
        header,
        "",
        ".",
        "..",
        "...",
    )
    yield from (
        f"{header}..{signature}",
        f".{payload}.{signature}",
        f"{header}.{payload}.",
        token.replace("e", "é"),
    )
    yield from (f"{header}.{payload}.{signature}".swapcase(), "\ud800.a.a", "٣.٣.٣")


@pytest.mark.parametrize("token", list(respelled(GENUINE)))
def test_a_genuine_token_that_is_spelled_otherwise_is_refused(verifier: TokenVerifier, token: str) -> None:
    assert verifier.verify(GENUINE).subject == "ada"
    assert refusal(verifier, token) == UNREADABLE


def test_a_token_that_is_too_long_is_refused_before_it_is_read(verifier: TokenVerifier) -> None:
    tokens_near = [
        token_of(claims(x="a" * some), x="J" * more) for some in range(5_740, 5_750) for more in (1, 2)
    ]
    by_length = {len(token): token for token in tokens_near}
    assert verifier.verify(by_length[8_192]).subject == "ada"
    for token in (by_length[8_193], "a" * 8_193, "." * 10_000_000, "é" * 8_193):
        assert refusal(verifier, token) == "the token is longer than 8,192 characters"


def test_an_issuer_is_asked_once_within_a_floor_however_many_keys_are_unknown(
    server: JwksServer, clock: ManualClock
) -> None:
    verifier = TokenVerifier({"corp": issuer(server)}, clock)
    verifier.start()
    wait_for(lambda: not verifier.without_keys())
    for number in range(1_000):
        assert (
            refusal(verifier, token_of(key=b"x", algorithm="ES256", kid=f"unknown {number}")) == UNKNOWN_KEY
        )
        verifier.look()
    assert len(server.asked) == 1
    clock.advance(9.9)
    for number in range(1_000):
        assert (
            refusal(verifier, token_of(key=b"x", algorithm="ES256", kid=f"unknown {number}")) == UNKNOWN_KEY
        )
        verifier.look()
    assert len(server.asked) == 1
    assert verifier.verify(GENUINE).subject == "ada"
    clock.advance(0.1)
    wait_for(lambda: len(server.asked) == 2)
    verifier.close()


def test_a_new_key_counts_once_it_is_read_and_the_old_one_as_long_as_it_is_there(
    server: JwksServer, clock: ManualClock, verifier: TokenVerifier
) -> None:
    old, new = token_of(), token_of(key=rsa_key(3), kid="k2")
    assert verifier.verify(old).subject == "ada"
    server.publish(jwk_of(rsa_key()), jwk_of(rsa_key(3), "k2"))
    assert refusal(verifier, new) == UNKNOWN_KEY
    clock.advance(10)  # it is asked for early, as the key is unknown
    verifier.look()
    kept = verifier.verify(new)
    assert kept.subject == "ada"
    assert verifier.verify(old).subject == "ada"
    server.publish(jwk_of(rsa_key(3), "k2"))
    clock.advance(300)
    verifier.look()
    assert verifier.verify(new) is kept
    for token in (old, token_of(claims(sub="bob"))):
        assert verifier.recognised(token) is None
        assert refusal(verifier, token) == UNKNOWN_KEY


def test_a_key_that_takes_the_name_of_another_does_not_take_its_tokens(
    server: JwksServer, clock: ManualClock, verifier: TokenVerifier
) -> None:
    verifier.verify(GENUINE)
    server.publish(jwk_of(rsa_key(3)))
    clock.advance(300)
    verifier.look()
    assert refusal(verifier, GENUINE) == NOT_VALID
    assert verifier.verify(token_of(key=rsa_key(3))).subject == "ada"


@pytest.mark.parametrize(
    "content", [b"", b"<html>", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "AA"}]}']
)
def test_tokens_count_while_their_issuer_answers_nonsense(
    server: JwksServer, clock: ManualClock, verifier: TokenVerifier, content: bytes
) -> None:
    before = verifier.verify(GENUINE)
    server.content = content
    clock.advance(300)
    verifier.look()
    assert verifier.verify(GENUINE) is before
    assert verifier.verify(token_of(claims(sub="bob"))).subject == "bob"
    assert list(verifier.problems()) == ["corp"]
    assert verifier.without_keys() == ()


def test_nothing_is_verified_before_the_keys_are_read_and_asking_again_may_help(
    server: JwksServer, clock: ManualClock
) -> None:
    server.status = 500
    verifier = TokenVerifier({"corp": issuer(server)}, clock)
    assert verifier.problems() == {"corp": "its keys are not read yet"}
    for _ in range(2):
        assert refusal(verifier, GENUINE) == KEYS_MISSING
        assert verifier.without_keys() == ("corp",)
        verifier.look()
    with pytest.raises(Unauthenticated) as raised:
        verifier.verify(GENUINE)
    problem = raised.value.to_problem("/v1/tables")
    assert (problem["status"], problem["code"], problem["retryable"]) == (401, "unauthenticated", True)
    server.status = 200
    clock.advance(10)
    verifier.look()
    assert verifier.verify(GENUINE).subject == "ada"
    assert (verifier.without_keys(), verifier.problems()) == ((), {})


def test_no_token_waits_for_an_issuer_that_hangs(server: JwksServer, clock: ManualClock) -> None:
    with jwks_server(jwk_of(rsa_key(4))) as other_server:
        other = issuer(other_server, issuer="https://other.example.com/")
        is_asked, may_answer, is_answered = threading.Event(), threading.Event(), threading.Event()
        contents = [server.content]

        def fetch(of: Issuer) -> bytes:
            if of.issuer == other.issuer:
                return other_server.content
            if not contents:
                is_asked.set()
                may_answer.wait()
                is_answered.set()
                return server.content
            return contents.pop()

        verifier = TokenVerifier({"corp": issuer(server), "other": other}, clock, fetch)
        verifier.start()
        wait_for(lambda: not verifier.without_keys())
        before = verifier.verify(GENUINE)
        clock.advance(300)
        assert is_asked.wait(30)
        assert verifier.verify(GENUINE) is before
        assert verifier.verify(token_of(claims(sub="bob"))).subject == "bob"
        assert refusal(verifier, token_of(kid="k9")) == UNKNOWN_KEY
        # Another issuer goes on meanwhile, too: a new key of it counts.
        other_server.publish(jwk_of(rsa_key(5), "k5"))
        theirs = token_of(claims(iss=other.issuer), rsa_key(5), kid="k5")

        def is_theirs_known() -> bool:
            clock.advance(10)
            try:
                return verifier.verify(theirs).issuer == "other"
            except Unauthenticated:
                return False

        wait_for(is_theirs_known)
        assert not is_answered.is_set()
        may_answer.set()
        verifier.close()


def test_a_server_that_hangs_delays_no_token(server: JwksServer, clock: ManualClock) -> None:
    verifier = TokenVerifier({"corp": issuer(server)}, clock)
    verifier.start()
    wait_for(lambda: not verifier.without_keys())
    server.may_answer.clear()
    clock.advance(300)
    assert server.is_hanging.wait(30)
    assert verifier.verify(GENUINE).subject == "ada"
    assert verifier.problems() == {}, "it has not given up yet, so it was not waited for"
    server.may_answer.set()
    verifier.close()


def test_a_token_is_judged_by_the_keys_of_its_own_issuer(server: JwksServer, clock: ManualClock) -> None:
    with jwks_server(jwk_of(rsa_key(4), "k1")) as other_server:
        other = issuer(other_server, issuer="https://other.example.com/", audience="theirs")
        verifier = TokenVerifier({"corp": issuer(server), "other": other}, clock)
        verifier.look()
    of_other = claims(iss=other.issuer, aud="theirs")
    assert verifier.verify(token_of()).issuer == "corp"
    assert verifier.verify(token_of(of_other, rsa_key(4))).issuer == "other"
    assert refusal(verifier, token_of(CLAIMS, rsa_key(4))) == NOT_VALID
    assert refusal(verifier, token_of(of_other, rsa_key())) == NOT_VALID
    assert refusal(verifier, token_of(claims(iss=other.issuer), rsa_key(4))) == OTHER_AUDIENCE
    assert refusal(verifier, token_of(claims(aud="theirs"))) == OTHER_AUDIENCE


def test_a_token_is_verified_once_and_counts_until_it_expires(
    verifier: TokenVerifier, clock: ManualClock
) -> None:
    assert verifier.recognised(GENUINE) is None
    first = verifier.verify(GENUINE)
    clock.advance(629.999)
    assert verifier.verify(GENUINE) is first
    assert verifier.recognised(GENUINE) is first
    clock.advance(0.001)
    assert clock.now_ms() == first.expires_at_ms
    assert verifier.recognised(GENUINE) is None
    assert refusal(verifier, GENUINE) == EXPIRED


def test_tokens_that_are_kept_are_bounded_and_no_invalid_one_takes_their_place(
    server: JwksServer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "VERIFIED_BYTES_MAX", 3 * len(GENUINE))
    verifier = TokenVerifier({"corp": issuer(server)}, clock)
    verifier.look()
    first = verifier.verify(GENUINE)
    for token in (*FORGED.values(), token_of(claims(exp=1)), token_of(claims(aud="other"))):
        refusal(verifier, token)
    assert verifier.verify(GENUINE) is first
    for number in range(3):
        verifier.verify(token_of(claims(sub=f"a{number}")))
    again = verifier.verify(GENUINE)
    assert again == first
    assert again is not first


def test_a_token_need_not_name_its_key_where_there_are_few(verifier: TokenVerifier) -> None:
    assert verifier.verify(token_of(kid=None)).subject == "ada"
    assert verifier.verify(token_of(key=rsa_key(1), algorithm="PS256", kid=None)).subject == "ada"
    assert refusal(verifier, token_of(key=rsa_key(2), kid=None)) == NOT_VALID


def test_a_key_for_encryption_signs_nothing(server: JwksServer, clock: ManualClock) -> None:
    server.publish(jwk_of(rsa_key(), use="enc"), jwk_of(rsa_key(1), "k2"))
    verifier = TokenVerifier({"corp": issuer(server)}, clock)
    verifier.look()
    assert refusal(verifier, GENUINE) == UNKNOWN_KEY
    assert refusal(verifier, token_of(kid=None)) == NOT_VALID
    assert (verifier.verify(token_of(key=rsa_key(1), kid="k2")).subject, verifier.problems()) == ("ada", {})


def test_a_short_key_signs_nothing_and_is_named(server: JwksServer, clock: ManualClock) -> None:
    server.publish(jwk_of(rsa_key(bits=1024), "short"), jwk_of(rsa_key()))
    verifier = TokenVerifier({"corp": issuer(server)}, clock)
    verifier.look()
    assert refusal(verifier, token_of(key=rsa_key(bits=1024), kid="short")) == UNKNOWN_KEY
    assert verifier.problems() == {
        "corp": 'the key "short" has 1024 bits, and 2,048 are the least that is taken'
    }


def test_keys_of_a_file_count_and_end_with_it(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [jwk_of(rsa_key())]}))
    facts = {"issuer": ISSUER, "audience": AUDIENCE, "jwks_file": path}
    verifier = TokenVerifier({"corp": Issuer.model_validate(facts)}, clock)
    verifier.start()
    wait_for(lambda: not verifier.without_keys())
    assert verifier.verify(GENUINE).subject == "ada"
    (tmp_path / "new").write_text(json.dumps({"keys": [jwk_of(rsa_key(3), "k2")]}))
    (tmp_path / "new").replace(path)

    def is_revoked() -> bool:
        try:
            verifier.verify(GENUINE)
        except Unauthenticated:
            return True
        return False

    wait_for(is_revoked)
    assert verifier.verify(token_of(key=rsa_key(3), kid="k2")).subject == "ada"
    verifier.close()


def test_issuers_that_change_are_taken_up_and_the_others_keep_their_keys(
    server: JwksServer, clock: ManualClock, verifier: TokenVerifier
) -> None:
    with jwks_server(jwk_of(rsa_key(4))) as other_server:
        other = issuer(other_server, issuer="https://other.example.com/")
        theirs = token_of(claims(iss=other.issuer), rsa_key(4))
        verifier.verify(GENUINE)
        assert refusal(verifier, theirs) == STRANGER
        verifier.take_up({"corp": issuer(server), "other": other})
        assert verifier.verify(GENUINE).subject == "ada"
        assert refusal(verifier, theirs) == KEYS_MISSING
        verifier.look()
        assert (len(server.asked), len(other_server.asked)) == (1, 1)
        assert verifier.verify(theirs).subject == "ada"
        verifier.take_up({"corp": issuer(server, audience="now another"), "other": other})
        assert refusal(verifier, GENUINE) == KEYS_MISSING
        verifier.look()
        assert refusal(verifier, GENUINE) == OTHER_AUDIENCE
        assert verifier.verify(theirs).subject == "ada"
        with pytest.raises(ConfigInvalid, match="a and b are the same issuer"):
            verifier.take_up({"a": issuer(server), "b": issuer(server)})
        assert verifier.verify(theirs).subject == "ada"
        verifier.take_up({})
        assert [refusal(verifier, token) for token in (GENUINE, theirs)] == [STRANGER, STRANGER]
        assert verifier.problems() == {}


def test_threads_end_with_their_issuers_and_with_the_verifier(server: JwksServer, clock: ManualClock) -> None:
    def threads() -> set[str]:
        return {one.name for one in threading.enumerate() if one.name.startswith("keys of ")}

    verifier = TokenVerifier({"corp": issuer(server)}, clock)
    assert threads() == set()
    verifier.start()
    assert threads() == {"keys of corp"}
    verifier.take_up({"other": issuer(server)})
    wait_for(lambda: threads() == {"keys of other"})
    wait_for(lambda: not verifier.without_keys())
    verifier.close()
    assert threads() == set()
    assert verifier.verify(GENUINE).issuer == "other", "what was read still counts"


def test_signatures_of_the_tests_are_those_of_the_standard() -> None:
    """RFC 8037, appendix A.4: what a token is signed with here is not only read by its own kind."""
    signed = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
    secret = base64.urlsafe_b64decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=")
    found = b64(signature_of(Ed25519PrivateKey.from_private_bytes(secret), "EdDSA", signed))
    assert found.startswith(
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
    )
