"""What real failures raise, each made from a detail to be read by people."""

from __future__ import annotations

import errno
from importlib import import_module
from typing import Any

from thermocline.errors import CatalogUnreachable, EngineFailed, KafkaUnreachable, TrinoUnreachable


def disk_full(detail: str) -> Exception:
    """The store has no room."""
    return OSError(errno.ENOSPC, detail)


def store_fails(detail: str) -> Exception:
    """The store can not read or write."""
    return OSError(errno.EIO, detail)


def kafka_away(detail: str) -> Exception:
    """No broker answers, in our words."""
    return KafkaUnreachable(bootstrap_servers="their addresses", detail=detail)


def no_broker_answers(detail: str) -> Exception:
    """No broker answers, in the words of a future."""
    return TimeoutError(detail)


def catalog_away(detail: str) -> Exception:
    """The catalog does not answer, in our words."""
    return CatalogUnreachable(uri="its address", detail=detail)


def trino_away(detail: str) -> Exception:
    """Trino does not answer."""
    return TrinoUnreachable(url="its address", detail=detail)


def engine_failed(detail: str) -> Exception:
    """Spark lost a job."""
    return EngineFailed(engine="Spark", detail=detail)


def memory_gone(detail: str) -> Exception:
    """A process has no memory left: of a Spark worker, the job fails by it."""
    return MemoryError(detail)


def database_away(detail: str) -> Exception:
    """The catalog does not answer, in SQLAlchemy's words."""
    return _made("sqlalchemy.exc", "OperationalError", detail, {}, Exception(detail))


def lmdb_fails(detail: str) -> Exception:
    """LMDB can not read or write."""
    return _made("lmdb", "Error", detail)


def duckdb_fails(detail: str) -> Exception:
    """DuckDB can not read or write."""
    return _made("duckdb", "IOException", detail)


def metadata_fails(detail: str) -> Exception:
    """The catalog, or the store of its metadata, could not be asked."""
    return _made("thermocline.ingest.commit.metadata", "MetadataError", detail)


def no_answer(detail: str) -> Exception:
    """The catalog does not answer a commit."""
    return _made("thermocline.ingest.commit.metadata", "NoAnswer", detail)


def _made(module: str, name: str, *arguments: Any) -> Exception:
    """An error of a package that not every process has, or of a room that this one must not import."""
    error: Exception = getattr(import_module(module), name)(*arguments)
    return error
