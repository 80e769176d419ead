"""Sets of keys: which are read, which are left out, and what is said of those."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.serving.access.signing import ec_key, ed_key, jwk_of, number64, rsa_key
from thermocline.serving.access.jwks import KeySet, KeysUnusable, read_keys

ALL = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
RSA = ALL[:6]


def read(*jwks: Any, algorithms: tuple[str, ...] = ALL) -> KeySet:
    return read_keys(json.dumps({"keys": jwks}).encode(), algorithms)


@pytest.mark.parametrize(
    ("jwk", "algorithms"),
    [
        (jwk_of(rsa_key()), RSA),
        (jwk_of(rsa_key(), alg="PS384"), ("PS384",)),
        (jwk_of(rsa_key(), use="sig", key_ops=["verify"]), RSA),
        (jwk_of(ec_key("P-256")), ("ES256",)),
        (jwk_of(ec_key("P-384"), alg="ES384"), ("ES384",)),
        (jwk_of(ec_key("P-521")), ("ES512",)),
        (jwk_of(ed_key("Ed25519")), ("EdDSA",)),
        (jwk_of(ed_key("Ed448")), ("EdDSA",)),
    ],
)
def test_a_key_has_the_algorithms_that_fit_it(jwk: dict[str, Any], algorithms: tuple[str, ...]) -> None:
    found = read(jwk, {"kty": "unknown"})
    assert [(key.kid, key.algorithms) for key in found.keys] == [("k1", algorithms)]


@pytest.mark.parametrize(
    ("jwk", "told"),
    [
        (1, "key 1 is no JSON object"),
        (jwk_of(rsa_key(), kid=None) | {"kid": 7}, "key 1 has a kid that is no text"),
        ({"kid": "a", "kty": "oct", "k": "AA"}, 'the key "a" is of type "oct", which is not known here'),
        ({"kid": "a"}, 'the key "a" is of type null, which is not known here'),
        ({"kid": "a", "kty": ["RSA"]}, 'the key "a" is of type ["RSA"], which is not known here'),
        ({"kid": "a", "kty": "RSA", "n": "AQAB"}, 'the key "a" lacks one of n, e'),
        ({"kid": "a", "kty": "RSA", "n": 7, "e": "AQAB"}, 'the key "a" lacks one of n, e'),
        (
            jwk_of(rsa_key(), d="AQAB"),
            'the key "k1" is published with its private part, so that anybody can sign',
        ),
        (jwk_of(rsa_key(bits=1024)), 'the key "k1" has 1024 bits, and 2,048 are the least that is taken'),
        (
            jwk_of(rsa_key(), alg="RSA-OAEP"),
            'the key "k1" is for the algorithm "RSA-OAEP", which is not known',
        ),
        (jwk_of(rsa_key(), alg="HS256"), 'the key "k1" is for the algorithm "HS256"'),
        (jwk_of(rsa_key(), alg="none"), 'the key "k1" is for the algorithm "none"'),
        (jwk_of(rsa_key(), alg="ES256"), "which is not known here or does not fit it"),
        (jwk_of(ec_key("P-384"), alg="ES256"), "which is not known here or does not fit it"),
        (jwk_of(rsa_key(), alg=["RS256"]), 'the key "k1" is for the algorithm ["RS256"]'),
        (jwk_of(ec_key("secp256k1")), 'the key "k1" is on the curve "secp256k1", which is not known here'),
        (jwk_of(ec_key()) | {"y": number64(5, 32)}, 'the key "k1" can\'t be read as EC'),
        (jwk_of(ec_key()) | {"x": "!"}, 'the key "k1" can\'t be read as EC'),
        (jwk_of(ed_key()) | {"x": "AAAA"}, 'the key "k1" can\'t be read as OKP'),
        (jwk_of(rsa_key()) | {"e": "AA"}, 'the key "k1" can\'t be read as RSA'),
    ],
)
def test_a_key_that_cannot_be_used_is_named_and_the_others_are(jwk: object, told: str) -> None:
    found = read(jwk, jwk_of(rsa_key(1), "good"))
    assert [key.kid for key in found.keys] == ["good"]
    assert len(found.skipped) == 1
    assert told in found.skipped[0]


@pytest.mark.parametrize("more", [{"use": "enc"}, {"key_ops": ["sign"]}, {"key_ops": 1}, {"use": None}])
def test_a_key_for_something_else_is_not_used_and_is_no_problem(more: dict[str, Any]) -> None:
    found = read(jwk_of(rsa_key(), "k1", **more), jwk_of(rsa_key(1), "good"))
    assert ([key.kid for key in found.keys], found.skipped) == (["good"], ())
    with pytest.raises(KeysUnusable, match="no key that verifies"):
        read(jwk_of(rsa_key(), "k1", **more))


def test_a_key_of_an_algorithm_that_is_not_configured_is_not_used() -> None:
    found = read(jwk_of(ec_key(), "e"), jwk_of(rsa_key(), "r"), algorithms=("RS256",))
    assert [(key.kid, key.algorithms) for key in found.keys] == [("r", ("RS256",))]
    assert found.skipped == ()
    with pytest.raises(KeysUnusable, match="it has no key that verifies RS256 or PS256"):
        read(jwk_of(ec_key(), "e"), algorithms=("RS256", "PS256"))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is not a JSON object"),
        (b"<html>", "is not a JSON object"),
        (b"[]", "is not a JSON object"),
        (b"\xff", "is not a JSON object"),
        (b"[" * 100_000, "is not a JSON object"),
        (b'{"keys": [], "keys": []}', "is not a JSON object"),
        (b"{}", 'has no list "keys"'),
        (b'{"keys": {}}', 'has no list "keys"'),
        (b'{"keys": []}', "has no key that verifies"),
        (
            b'{"keys": [{"kty": "oct", "kid": "a"}]}',
            'has no key that verifies .*; the key "a" is of type "oct"',
        ),
        (json.dumps({"keys": [{}] * 101}).encode(), "more than 100 keys"),
    ],
)
def test_what_is_no_set_of_keys_is_refused(content: bytes, told: str) -> None:
    with pytest.raises(KeysUnusable, match=told):
        read_keys(content, ALL)


def test_names_in_a_problem_are_bounded() -> None:
    found = read(*({"kid": "x" * 10_000} for _ in range(50)), jwk_of(rsa_key()))
    assert len(found.skipped) == 6
    assert found.skipped[-1] == "45 more are not used"
    assert max(map(len, found.skipped)) < 150


def test_the_same_key_has_the_same_thumbprint_and_no_other_has() -> None:
    one, again = read(jwk_of(rsa_key())), read(jwk_of(rsa_key(), x5t="other"), jwk_of(rsa_key()))
    assert one.thumbprints == again.thumbprints
    assert len(again.keys) == 1
    others = (jwk_of(rsa_key(1)), jwk_of(rsa_key(), "k2"), jwk_of(rsa_key(), alg="PS256"))
    for other in others:
        assert not one.thumbprints & read(other).thumbprints


def test_a_token_that_names_no_key_is_tried_with_few() -> None:
    four, five = (tuple(jwk_of(rsa_key(n), str(n)) for n in range(count)) for count in (4, 5))
    assert [key.kid for key in read(*four).of(None, "RS256")] == ["0", "1", "2", "3"]
    assert read(*five).of(None, "RS256") == ()
    assert [key.kid for key in read(*five).of("3", "RS256")] == ["3"]
    assert read(*five).of("3", "ES256") == ()
