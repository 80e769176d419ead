"""Checks of settings beyond their types: can an address be one, and can a folder be written?

Each check gives a sentence for a problem, never with a secret.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from thermocline.errors import did_you_mean
from thermocline.process.tls import TLS_ERRORS, reason_of, server_context
from thermocline.settings.model import CatalogSettings, KafkaSettings, ServingSettings, Settings

__all__ = [
    "problems_of_addresses",
    "problems_of_client",
    "problems_of_exposure",
    "problems_of_folders",
    "problems_of_places",
    "problems_of_tls",
]

# As librdkafka takes them, perhaps with a protocol; but the port, which it would guess.
_BROKER: Final = re.compile(r"(?:\w+://)?(?:\[[\da-fA-F:.]+\]|[^\s:/\[\]]+):(\d{1,5})")
_PRIVATE: Final = ("serving.state_dir", "serving.extract_jobs_dir")
_SHARED: Final = ("catalog.warehouse", "catalog.uri")
_PORT_MAX: Final = 65_535
_EXAMPLES: Final = "sqlite:///catalog.db or postgresql://USER@HOST/NAME"


def problems_of_addresses(settings: Settings) -> Iterator[str]:
    """Addresses that can't be those of brokers or of a database. Asks nobody."""
    yield from _problems_of_brokers(settings.kafka)
    if settings.catalog.type == "sql":
        yield from _problems_of_database(settings.catalog.uri)


def problems_of_folders(settings: Settings) -> Iterator[str]:
    """Folders of this machine that are to be written and can't be. Leaves nothing behind.

    Of a folder that does not exist yet, the closest one above it that does is tried.
    """
    for name, folder in _folders(settings):
        reason = _why_not_writable(folder)
        if reason is not None:
            yield f"{name}: {folder} can't be written: {reason}"


def problems_of_places(settings: Settings) -> Iterator[str]:
    """Tables and catalogs within a folder that nobody but the server can enter."""
    private = {name: folder.resolve() for name, folder in _folders(settings) if name in _PRIVATE}
    shared = {name: folder.resolve() for name, folder in _folders(settings) if name in _SHARED}
    for name, folder in shared.items():
        for other, kept in private.items():
            if folder.is_relative_to(kept):  # safety: tables-apart
                yield f"{name}: {folder} lies in {other}, {kept}, which others can't enter: put it elsewhere"


def problems_of_client(kafka: KafkaSettings) -> Iterator[str]:
    """Settings of which Kafka's client can't be made. Asks no broker."""
    from thermocline.kafka.client_settings import problems_of_client as problems_of  # noqa: PLC0415  (slow)

    yield from problems_of(kafka.client)


def problems_of_exposure(serving: ServingSettings) -> Iterator[str]:
    """Why the server must not listen there: other machines could read every table."""
    if serving.clients_file is None and not _is_loopback(serving.host):  # safety: loopback-only
        yield (
            f'serving.host: other machines can reach "{serving.host}", and nobody would have to say who they '
            'are: set serving.clients_file, and see `thermocline client create`; or host = "127.0.0.1"'
        )


def problems_of_tls(serving: ServingSettings) -> Iterator[str]:
    """Why the server can't speak TLS with the files that it is to do so with."""
    if serving.tls_certificate is None or serving.tls_key is None:
        return
    for name in ("tls_certificate", "tls_key", "tls_client_ca"):
        path: Path | None = getattr(serving, name)
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            yield f"serving.{name}: {path} can't be read: {reason_of(error)}"
            return
    try:
        server_context(serving.tls_certificate, serving.tls_key)
    except TLS_ERRORS as error:
        at = f"{serving.tls_certificate} and {serving.tls_key}"
        yield f"serving.tls_certificate, serving.tls_key: {at} can't be used: {reason_of(error)}"
        return
    try:
        server_context(serving.tls_certificate, serving.tls_key, serving.tls_client_ca)
    except TLS_ERRORS as error:
        yield f"serving.tls_client_ca: {serving.tls_client_ca} can't be used: {reason_of(error)}"


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach it; of a name other than localhost that isn't known."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _problems_of_brokers(kafka: KafkaSettings) -> Iterator[str]:
    for broker in kafka.bootstrap_servers.split(","):
        match = _BROKER.fullmatch(broker.strip())
        if match is None or not 0 < int(match[1]) <= _PORT_MAX:
            problem = f'"{broker.strip()}" is not HOST:PORT, such as broker:9092'
            yield f"kafka.bootstrap_servers: {problem}"


def _problems_of_database(uri: str) -> Iterator[str]:
    # Slow, and every command imports this module.
    from sqlalchemy.dialects import __all__ as databases  # noqa: PLC0415
    from sqlalchemy.engine import make_url  # noqa: PLC0415
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError  # noqa: PLC0415

    try:
        url = make_url(uri)
        url.get_dialect()
        # SQLAlchemy takes them as they are; a JDBC driver, and what masks passwords, would see another URL.
        if (url.username or url.password) and "@" not in urlsplit(uri).netloc:
            yield "catalog.uri: in its user and password, write / as %2F, ? as %3F and # as %23"
    except NoSuchModuleError:
        scheme = uri.partition("://")[0]
        hint = did_you_mean(scheme.partition("+")[0], databases) or f"; use {_EXAMPLES}"
        yield f'catalog.uri: "{scheme}" is not a database that SQLAlchemy knows{hint}'
    except (ArgumentError, ValueError):
        yield f"catalog.uri: is not the address of a database, such as {_EXAMPLES}"


def _folders(settings: Settings) -> Iterator[tuple[str, Path]]:
    yield "serving.state_dir", settings.serving.state_dir
    if settings.serving.extract_jobs_dir is not None:
        yield "serving.extract_jobs_dir", settings.serving.extract_jobs_dir
    if settings.audit.sink == "file":
        yield "audit.path", settings.audit.path
    if settings.audit.sink != "off" and not settings.audit.hash_key_file.exists():
        yield "audit.hash_key_file", settings.audit.hash_key_file.parent
    warehouse = _local_warehouse(settings.catalog)
    if warehouse is not None:
        yield "catalog.warehouse", warehouse
    scheme, _, database = settings.catalog.uri.partition(":///")
    if settings.catalog.type == "sql" and scheme.startswith("sqlite") and database not in ("", ":memory:"):
        yield "catalog.uri", Path(database.partition("?")[0]).parent


def _local_warehouse(catalog: CatalogSettings) -> Path | None:
    """The warehouse's folder; None where it is elsewhere, or a name that the catalog's server knows."""
    place = urlsplit(catalog.warehouse)
    if catalog.type not in ("sql", "hive") or not catalog.warehouse or place.scheme not in ("", "file"):
        return None
    return Path(unquote(place.path) if place.scheme else catalog.warehouse)


def _why_not_writable(folder: Path) -> str | None:
    """Why no file can be made there; None where one can."""
    existing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    try:
        # On Linux it never has a name, and it is gone when it is closed.
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return reason if existing == folder else f"{existing}: {reason}"
