"""An issuer's keys: a JSON Web Key Set read, each key with the algorithms that fit it.

Source: RFC 7517 (keys and sets), RFC 7518 (members and algorithms), RFC 8037 (EdDSA).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm

__all__ = ["Key", "KeySet", "KeysUnusable", "json_object", "read_keys"]

KEYS_MAX: Final = 100
"""In a set; issuers have two to ten."""
KEYS_TRIED_MAX: Final = 4
"""For one token, where it does not name its key, or several have the name. Each costs a verification."""
RSA_BITS_MIN: Final = 2_048
"""Shorter ones can be broken, or will be soon; RFC 7518 demands it, too."""
NAME_SHOWN_MAX: Final = 60
"""Characters of a text that an issuer chose, in a problem."""
SKIPPED_SHOWN_MAX: Final = 5

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_FITTING: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("RSA", ""): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
"""By type and curve: a key of another type would be used as something that it is not."""
_PUBLIC: Final = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}


class KeysUnusable(Exception):
    """What came is no set of keys, or nothing came; it says why."""


class _Skipped(Exception):
    """This key is not used; it says why. Without words it is for something else, as keys may be."""


@dataclass(frozen=True, slots=True)
class Key:
    """A public key. ``algorithms`` are those that fit it; equal ones have the same ``thumbprint``."""

    kid: str | None
    algorithms: tuple[str, ...]
    thumbprint: str
    public: Any = field(repr=False)

    def has_signed(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Whether the signature is its, by an algorithm that fits it."""
        return jwt.get_algorithm_by_name(algorithm).verify(signed, self.public, signature)


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of an issuer at a time; ``skipped`` says which of them are not used, and why."""

    keys: tuple[Key, ...] = ()
    skipped: tuple[str, ...] = ()
    thumbprints: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "thumbprints", frozenset(key.thumbprint for key in self.keys))

    def of(self, kid: str | None, algorithm: str) -> tuple[Key, ...]:
        """Those that a token may be signed with which names this key, or None; no more than are tried."""
        named = [key for key in self.keys if kid in (None, key.kid)]
        found = tuple(key for key in named if algorithm in key.algorithms)  # safety: token-key-type
        return found if len(found) <= KEYS_TRIED_MAX else ()


def read_keys(content: bytes, algorithms: Sequence[str]) -> KeySet:
    """The keys that verify with one of the algorithms. Raises `KeysUnusable`, also where there is none."""
    try:
        members = json_object(content)
    except (ValueError, RecursionError) as error:
        raise KeysUnusable("it is not a JSON object") from error
    found = members.get("keys")
    if found is None and "jwks_uri" in members:
        raise KeysUnusable(
            "it is a configuration and no set of keys: leave jwks_url out, and it is looked for"
        )
    if not isinstance(found, list):
        raise KeysUnusable('it has no list "keys"')
    if len(found) > KEYS_MAX:
        raise KeysUnusable(f"it has more than {KEYS_MAX} keys")
    keys: dict[str, Key] = {}
    skipped = []
    for number, jwk in enumerate(found, start=1):
        try:
            key = _key_of(jwk, frozenset(algorithms))
        except _Skipped as error:
            if str(error):
                skipped.append(f"{_name_of(jwk, number)} {error}")
        else:
            keys[key.thumbprint] = key
    told = _told(skipped)
    if not keys:  # safety: jwks-empty
        raise KeysUnusable("; ".join((f"it has no key that verifies {' or '.join(algorithms)}", *told)))
    return KeySet(tuple(keys.values()), told)


def json_object(content: bytes) -> dict[str, Any]:
    """A JSON object in UTF-8. Raises `ValueError` or `RecursionError`.

    Refused is what readers understand differently: a name that an object has twice, NaN, half a surrogate.
    """
    text = content.decode()
    found = json.loads(text, object_pairs_hook=_once_each, parse_constant=_no_constant)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004  # as for all else that is wrong with it
    if "\\u" in text:
        json.dumps(found, ensure_ascii=False).encode()
    return found


def _key_of(jwk: object, algorithms: frozenset[str]) -> Key:
    """Raises `_Skipped`."""
    if not isinstance(jwk, dict):
        raise _Skipped("is no JSON object")
    operations = jwk.get("key_ops", ["verify"])
    is_to_verify = isinstance(operations, list) and "verify" in operations
    if jwk.get("use", "sig") != "sig" or not is_to_verify:  # safety: jwks-use
        raise _Skipped
    kid = jwk.get("kid")
    if not isinstance(kid, str | None):
        raise _Skipped("has a kid that is no text")
    public = _public_members(jwk)
    fitting = _fitting(jwk, public)
    used = tuple(name for name in fitting if name in algorithms)
    if not used:
        raise _Skipped  # its issuer signs other things by other algorithms
    key = _public_key(used[0], public)
    if public["kty"] == "RSA" and key.key_size < RSA_BITS_MIN:  # safety: jwks-rsa-bits
        raise _Skipped(f"has {key.key_size} bits, and {RSA_BITS_MIN:,} are the least that is taken")
    identity = json.dumps([kid, used, public], sort_keys=True).encode()
    return Key(kid, used, hashlib.sha256(identity).hexdigest(), key)


def _public_members(jwk: Mapping[str, Any]) -> dict[str, str]:
    kty = jwk.get("kty")
    if not isinstance(kty, str) or kty not in _PUBLIC:
        raise _Skipped(f"is of type {_shown(kty)}, which is not known here")
    public = {name: jwk.get(name) for name in ("kty", *_PUBLIC[kty])}
    texts = {name: value for name, value in public.items() if isinstance(value, str)}
    if len(texts) < len(public):
        raise _Skipped(f"lacks one of {', '.join(_PUBLIC[kty])}")
    if "d" in jwk:  # safety: jwks-private
        raise _Skipped("is published with its private part, so that anybody can sign with it")
    return texts


def _fitting(jwk: Mapping[str, Any], public: Mapping[str, str]) -> tuple[str, ...]:
    """The algorithms of its type and curve; of these the one that it says it is for."""
    curve, said = public.get("crv", ""), jwk.get("alg")
    fitting = _FITTING.get((public["kty"], curve))
    if fitting is None:
        raise _Skipped(f"is on the curve {_shown(curve)}, which is not known here")
    if said is None:
        return fitting
    if said not in fitting:
        raise _Skipped(f"is for the algorithm {_shown(said)}, which is not known here or does not fit it")
    return (said,)


def _public_key(algorithm: str, jwk: dict[str, str]) -> Any:
    try:
        reader = jwt.get_algorithm_by_name(algorithm)
        return reader.prepare_key(reader.from_jwk(jwk))
    except (jwt.PyJWTError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _Skipped(f"can't be read as {jwk['kty']}") from error


def _told(skipped: list[str]) -> tuple[str, ...]:
    more = len(skipped) - SKIPPED_SHOWN_MAX
    return (*skipped[:SKIPPED_SHOWN_MAX], *([f"{more} more are not used"] if more > 0 else []))


def _name_of(jwk: object, number: int) -> str:
    kid = jwk.get("kid") if isinstance(jwk, dict) else None
    return f"the key {_shown(kid)}" if isinstance(kid, str) else f"key {number}"


def _shown(value: object) -> str:
    return json.dumps(value)[:NAME_SHOWN_MAX]


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):  # safety: token-members-once
        raise ValueError("an object has a member twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
