"""URLs that keys of issuers are read from: whoever can change what comes from there can sign tokens.

Source of where an issuer's configuration is: OpenID Connect Discovery 1.0, section 4.1.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final
from urllib.parse import urlsplit

__all__ = ["check_issuer_url", "check_keys_url", "configuration_url", "is_of_this_machine"]

URL_CHARACTERS_MAX: Final = 1_000
_CONFIGURATION: Final = "/.well-known/openid-configuration"
_NO_URL: Final = "it is no URL such as https://login.example.com/keys"


def check_keys_url(url: str) -> None:
    """Raises `ValueError` for a URL that no keys are read from."""
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0 and not parts.fragment
    except ValueError:
        raise ValueError(_NO_URL) from None
    if not is_whole or not url.isprintable() or " " in url or len(url) > URL_CHARACTERS_MAX:
        raise ValueError(_NO_URL)
    if "@" in parts.netloc:
        raise ValueError("it can't hold a user or password: the keys are public")
    is_local = parts.scheme == "http" and is_of_this_machine(url)
    if parts.scheme != "https" and not is_local:  # safety: jwks-https
        raise ValueError(
            "it has to be https, since whoever can change the answer can sign tokens; "
            "http is taken to this machine alone (127.0.0.1, ::1, localhost)"
        )


def check_issuer_url(issuer: str) -> None:
    """Raises `ValueError` where an issuer has no URL at which it could publish its configuration."""
    try:
        check_keys_url(issuer)
        problem = "it has a query" if "?" in issuer else None
    except ValueError as error:
        problem = str(error)
    if problem is not None:
        raise ValueError(
            f"without jwks_url or jwks_file its keys are found by its URL, which issuer is not: {problem}"
        )


def configuration_url(issuer: str) -> str:
    """The URL at which an issuer publishes its configuration."""
    return f"{issuer.removesuffix('/')}{_CONFIGURATION}"


def is_of_this_machine(url: str) -> bool:
    """Whether its host is this machine, as far as the URL says so."""
    host = urlsplit(url).hostname or ""
    address = _address(host)
    if address is None:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is, in every form in which a connection takes it; None where it is a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))  # such as 127.1 and 0x7f000001
        except OSError:
            return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped
