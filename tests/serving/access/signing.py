"""Keys, sets of keys and tokens, made without the library that reads them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

NOW = 1_700_000_000
"""Where a manual clock begins, in seconds."""
ISSUER, AUDIENCE = "https://login.example.com/", "thermocline"
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": NOW + 600}
HASHES: dict[str, Any] = {"256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512}
CURVES: dict[str, Any] = {
    "P-256": ec.SECP256R1,
    "P-384": ec.SECP384R1,
    "P-521": ec.SECP521R1,
    "secp256k1": ec.SECP256K1,
}
Signer = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | Ed25519PrivateKey | Ed448PrivateKey


@cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(curve: str = "P-256", number: int = 0) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(CURVES[curve]())


@cache
def ed_key(curve: str = "Ed25519") -> Ed25519PrivateKey | Ed448PrivateKey:
    return Ed25519PrivateKey.generate() if curve == "Ed25519" else Ed448PrivateKey.generate()


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def number64(number: int, size: int | None = None) -> str:
    return b64(number.to_bytes(size or (number.bit_length() + 7) // 8, "big"))


def jwk_of(key: Signer, kid: str | None = "k1", **more: Any) -> dict[str, Any]:
    """The public part, as an issuer publishes it."""
    named = {} if kid is None else {"kid": kid}
    if isinstance(key, rsa.RSAPrivateKey):
        public = key.public_key().public_numbers()
        return {"kty": "RSA", "n": number64(public.n), "e": number64(public.e), **named, **more}
    if isinstance(key, ec.EllipticCurvePrivateKey):
        point, size = key.public_key().public_numbers(), (key.key_size + 7) // 8
        curve = next(name for name, one in CURVES.items() if isinstance(key.curve, one))
        at = {"x": number64(point.x, size), "y": number64(point.y, size)}
        return {"kty": "EC", "crv": curve, **at, **named, **more}
    curve = "Ed25519" if isinstance(key, Ed25519PrivateKey) else "Ed448"
    return {"kty": "OKP", "crv": curve, "x": b64(key.public_key().public_bytes_raw()), **named, **more}


def signature_of(key: Signer | bytes, algorithm: str, signed: bytes) -> bytes:
    if isinstance(key, bytes):
        return hmac.new(key, signed, hashlib.sha256).digest()
    if isinstance(key, Ed25519PrivateKey | Ed448PrivateKey):
        return key.sign(signed)
    digest = HASHES[algorithm[2:]]()
    if isinstance(key, ec.EllipticCurvePrivateKey):
        size = (key.key_size + 7) // 8
        r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(digest)))
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")
    if algorithm.startswith("PS"):
        return key.sign(signed, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
    return key.sign(signed, padding.PKCS1v15(), digest)


def token_of(
    claims: object = None,
    key: Signer | bytes | None = None,
    algorithm: str = "RS256",
    kid: object = "k1",
    **header: Any,
) -> str:
    """A token with these claims; given as bytes, they are the payload as it is."""
    payload = (
        claims if isinstance(claims, bytes) else json.dumps(CLAIMS if claims is None else claims).encode()
    )
    named = {} if kid is None else {"kid": kid}
    return signed_token(json.dumps({"alg": algorithm, **named, **header}).encode(), payload, key, algorithm)


def signed_token(
    header: bytes, payload: bytes, key: Signer | bytes | None = None, algorithm: str = "RS256"
) -> str:
    signed = f"{b64(header)}.{b64(payload)}"
    return f"{signed}.{b64(signature_of(key or rsa_key(), algorithm, signed.encode()))}"


def claims_without(name: str) -> dict[str, Any]:
    return {one: value for one, value in CLAIMS.items() if one != name}
