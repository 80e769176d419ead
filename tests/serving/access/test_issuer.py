"""The settings of issuers: what can be set, and what is said of what can't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from thermocline.serving.access.issuer import Issuer, check_issuers

URL = "https://login.example.com/keys"


def issuer(**more: Any) -> Issuer:
    return Issuer.model_validate({"issuer": "https://login.example.com/", "audience": "thermocline", **more})


def test_an_issuer_has_these_defaults() -> None:
    made = issuer(jwks_url=URL)
    assert made.algorithms == ("RS256",)
    assert (made.leeway_seconds, made.refresh_seconds, made.floor_seconds) == (30.0, 300.0, 10.0)
    assert (made.jwks_file, made.ca_file, made.from_where) == (None, None, URL)
    assert (made.audience, made.types) == (("thermocline",), None)
    assert issuer(jwks_file="keys.json").jwks_file == Path("keys.json")


@pytest.mark.parametrize("name", ["https://login.example.com/corp", "https://login.example.com/corp/"])
def test_the_configuration_of_an_issuer_is_below_its_url(name: str) -> None:
    made = issuer(issuer=name, ca_file="ca.pem")
    assert made.from_where == "https://login.example.com/corp/.well-known/openid-configuration"


def test_a_server_may_have_several_audiences() -> None:
    assert issuer(audience=["thermocline", "api://old"]).audience == ("thermocline", "api://old")


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "HTTPS://login.example.com:8443/a?b=c",
        "http://127.0.0.1:80/k",
        "http://[::1]/",
        "http://localhost/",
    ],
)
def test_keys_come_by_https_or_from_this_machine(url: str) -> None:
    assert issuer(jwks_url=url).jwks_url == url


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"jwks_url": URL, "jwks_file": "k"}, "set jwks_url or jwks_file, not both"),
        ({"jwks_file": "k", "ca_file": "c"}, "ca_file is for keys that are asked for"),
        ({"issuer": "corp"}, "its keys are found by its URL, which issuer is not: it is no URL"),
        ({"issuer": "http://login.example.com"}, "which issuer is not: it has to be https"),
        ({"issuer": "https://login.example.com/?a=b"}, "which issuer is not: it has a query"),
        ({"issuer": "https://user:pw@login.example.com/"}, "can't hold a user or password"),
        ({"jwks_url": "http://login.example.com/keys"}, "has to be https"),
        ({"jwks_url": "http://127.0.0.1.example.com/"}, "has to be https"),
        ({"jwks_url": "http://10.0.0.1/"}, "has to be https"),
        ({"jwks_url": "ftp://127.0.0.1/"}, "has to be https"),
        ({"jwks_url": "https://user:pw@login.example.com/"}, "can't hold a user or password"),
        *(
            ({"jwks_url": url}, "is no URL")
            for url in ("", "keys.json", "https://", "https://a b/", "https://[::1", "https://a/\x1b[2J")
        ),
        *(({"jwks_url": url}, "is no URL") for url in ("https://a:99999/", "https://a:0/", "https://a/#b")),
        ({"jwks_url": URL, "algorithms": []}, "algorithms"),
        *(
            ({"jwks_url": URL, "algorithms": [one]}, "algorithms.0")
            for one in ("none", "HS256", "rs256", "ES256K")
        ),
        ({"jwks_url": URL, "leeway_seconds": 301}, "leeway_seconds"),
        ({"jwks_url": URL, "leeway_seconds": -1}, "leeway_seconds"),
        ({"jwks_url": URL, "refresh_seconds": 0}, "refresh_seconds"),
        ({"jwks_url": URL, "refresh_seconds": 86_401}, "refresh_seconds"),
        ({"jwks_url": URL, "floor_seconds": 0.5}, "floor_seconds"),
        ({"jwks_url": URL, "floor_seconds": 301}, "can't be more than refresh_seconds"),
        ({"jwks_url": URL, "issuer": ""}, "issuer"),
        ({"jwks_url": URL, "audience": ""}, "audience"),
        ({"jwks_url": URL, "audience": []}, "it names none, so that no token would be for this server"),
        ({"jwks_url": URL, "audience": ["a", ""]}, "audience.1"),
        ({"jwks_url": URL, "audience": ["a"] * 17}, "audience"),
        ({"jwks_url": URL, "audience": 7}, "audience"),
        ({"jwks_url": URL, "types": []}, "leave it out, so that JWT and at+jwt are taken"),
        *(({"jwks_url": URL, "types": [one]}, "types.0") for one in ("", "at jwt", "a/b/c", "x" * 101)),
        ({"jwks_url": URL, "key": "k"}, "key"),
    ],
)
def test_what_cannot_be_is_named(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as raised:
        issuer(**more)
    assert problem in str(raised.value)
    assert "pw" not in str(raised.value)


def test_two_names_for_one_issuer_are_refused() -> None:
    other = issuer(jwks_url=URL).model_copy(update={"issuer": "https://other.example.com/"})
    check_issuers({"a": issuer(jwks_url=URL), "b": other})
    with pytest.raises(ValueError, match=r"a and b are the same issuer, https://login\.example\.com/"):
        check_issuers({"a": issuer(jwks_url=URL), "b": issuer(jwks_file="k")})


def test_issuers_are_bounded() -> None:
    one = issuer(jwks_url=URL)
    many = {str(number): one.model_copy(update={"issuer": str(number)}) for number in range(17)}
    with pytest.raises(ValueError, match="17 issuers, and at most 16"):
        check_issuers(many)
