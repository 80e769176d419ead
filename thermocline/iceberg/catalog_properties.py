"""The catalog's settings, which have PyIceberg's names, in the words of every engine that needs them.

`WORDS` is the one table of it: for each of PyIceberg's properties, what Iceberg's Java library (with Spark),
Trino's Iceberg connector and DuckDB's secrets call it. Where an engine has no counterpart, the property is
refused there by name (``left_out``). A name that is not in the table is taken for one of the Java library.
Where an object store has no keys in our settings, each engine finds its own as the cloud's libraries do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

if TYPE_CHECKING:
    from thermocline.settings import CatalogSettings

# SQLite lets one process write at a time; another one's commit takes milliseconds, a backup seconds.
SQLITE_BUSY_SECONDS = 30
# What a database gets to answer a request of Java's: a connection that the network has forgotten never does.
POSTGRES_SOCKET_SECONDS = 60

# A REST catalog: neither Java nor PyIceberg has a bound of its own. A commit of many files takes seconds.
REST_CONNECT_SECONDS = 10
REST_ANSWER_SECONDS = 60

# An object store: a connection takes milliseconds, also over an ocean; a row group or a part of a file comes
# within seconds. An answer that takes longer is lost, and is asked for again.
STORE_CONNECT_SECONDS = 10
STORE_ANSWER_SECONDS = 60
# Java's; see `store_retries` for Arrow's.
STORE_RETRIES_MAX = 8

# Parameters of a database's URL that no engine may get within the URL, which files and logs show.
_CREDENTIALS: Final = ("user", "password")


@dataclass(frozen=True, slots=True)
class Words:
    """One property in the words of each engine; without a word it has no counterpart there."""

    java: str = ""
    trino: tuple[str, ...] = ()
    duckdb: str = ""
    is_secret: bool = False


@dataclass(slots=True)
class EngineProperties:
    """A catalog's settings for one engine.

    Attributes:
        values: By the engine's names.
        secrets: Which of the names have a secret as their value.
        left_out: Names of ours that have no counterpart, each with a reason.
    """

    values: dict[str, str] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)
    left_out: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"EngineProperties(values={list(self.values)}, left_out={self.left_out})"


_REST: Final = "iceberg.rest-catalog"
_GLUE: Final = "hive.metastore.glue"
_JDBC: Final = "iceberg.jdbc-catalog"

_STORE_SCHEMES: Final = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    "gs": "gcs",
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "azure"),
    "hdfs": "hdfs",
}
_STORE_PREFIXES: Final = {"s3.": "s3", "gcs.": "gcs", "adls.": "azure"}

_PYICEBERG_S3: Final = {
    "s3.connect-timeout": str(STORE_CONNECT_SECONDS),
    "s3.request-timeout": str(STORE_ANSWER_SECONDS),
    "s3.retry-strategy-impl": "thermocline.iceberg.store_retries.PatientRetries",
    "py-io-impl": "thermocline.iceberg.shared_io.SharedFileIO",
}
_JAVA_S3: Final = {
    "http-client.apache.connection-timeout-ms": str(STORE_CONNECT_SECONDS * 1000),
    "http-client.apache.socket-timeout-ms": str(STORE_ANSWER_SECONDS * 1000),
    "s3.retry.num-retries": str(STORE_RETRIES_MAX),
}

_REST_BOUNDS: Final = {
    "rest.client.connection-timeout-ms": str(REST_CONNECT_SECONDS * 1000),
    "rest.client.socket-timeout-ms": str(REST_ANSWER_SECONDS * 1000),
}

_DERIVED: Final = "(derived)"
"""The engine gets it under a name or with a value that hangs on others: by a rule below."""


def _same(name: str, *trino: str, duckdb: str = "", is_secret: bool = False) -> tuple[str, Words]:
    """A property that Java knows by PyIceberg's name."""
    return name, Words(name, trino, duckdb, is_secret)


# The more specific name comes first: where two of ours are one name of an engine, the first has it.
WORDS: Final[Mapping[str, Words]] = dict(
    [
        # Object stores.
        _same("s3.endpoint", "s3.endpoint", duckdb=_DERIVED),
        _same("s3.access-key-id", "s3.aws-access-key", duckdb="KEY_ID", is_secret=True),
        _same("s3.secret-access-key", "s3.aws-secret-key", duckdb="SECRET", is_secret=True),
        _same("s3.session-token", duckdb="SESSION_TOKEN", is_secret=True),
        ("s3.region", Words("client.region", ("s3.region",), "REGION")),
        ("s3.role-arn", Words(trino=("s3.iam-role",))),
        ("s3.role-session-name", Words(trino=("s3.role-session-name",))),
        ("s3.force-virtual-addressing", Words(_DERIVED, (_DERIVED,), _DERIVED)),
        ("s3.proxy-uri", Words("http-client.proxy-endpoint")),
        _same("gcs.project-id", "gcs.project-id"),
        _same("gcs.service.host", "gcs.endpoint"),
        _same("gcs.oauth2.token", is_secret=True),
        _same("gcs.oauth2.token-expires-at"),
        # Trino reads it in the paths of the files.
        ("adls.account-name", Words("adls.auth.shared-key.account.name", (_DERIVED,))),
        (
            "adls.account-key",
            Words("adls.auth.shared-key.account.key", ("azure.access-key",), is_secret=True),
        ),
        _same("adls.token", is_secret=True),
        # Catalogs.
        _same("prefix", f"{_REST}.prefix"),
        _same("credential", f"{_REST}.oauth2.credential", is_secret=True),
        _same("token", f"{_REST}.oauth2.token", is_secret=True),
        _same("oauth2-server-uri", f"{_REST}.oauth2.server-uri"),
        _same("scope", f"{_REST}.oauth2.scope"),
        _same("audience"),
        _same("resource"),
        _same("rest.sigv4-enabled", _DERIVED),
        _same("rest.signing-name", f"{_REST}.signing-name"),
        _same("rest.signing-region"),
        _same("rest-page-size"),
        _same("snapshot-loading-mode"),
        _same("scan-planning-mode"),
        _same("namespace-separator"),
        _same("view-endpoints-supported"),
        _same("glue.id", f"{_GLUE}.catalogid"),
        _same("glue.endpoint", f"{_GLUE}.endpoint-url"),
        _same("glue.skip-archive", f"{_GLUE}.skip-archive"),
        ("glue.region", Words("client.region", (f"{_GLUE}.region",))),
        ("glue.role-arn", Words(trino=(f"{_GLUE}.iam-role",))),
        ("glue.access-key-id", Words(trino=(f"{_GLUE}.aws-access-key",), is_secret=True)),
        ("glue.secret-access-key", Words(trino=(f"{_GLUE}.aws-secret-key",), is_secret=True)),
        # All of a cloud, for catalog and store.
        _same("client.region", f"{_GLUE}.region", "s3.region", duckdb="REGION"),
        (
            "client.access-key-id",
            Words("s3.access-key-id", (f"{_GLUE}.aws-access-key", "s3.aws-access-key"), "KEY_ID", True),
        ),
        (
            "client.secret-access-key",
            Words("s3.secret-access-key", (f"{_GLUE}.aws-secret-key", "s3.aws-secret-key"), "SECRET", True),
        ),
        ("client.session-token", Words("s3.session-token", (), "SESSION_TOKEN", True)),
        ("client.role-arn", Words(trino=(f"{_GLUE}.iam-role", "s3.iam-role"))),
        ("client.role-session-name", Words(trino=("s3.role-session-name",))),
        # What only PyIceberg has, or has in a way of its own.
        *(
            (f"{prefix}{name}", Words())
            for prefix, names in {
                "": (
                    *("auth", "botocore_session", "downcast-ns-timestamp-to-us-on-write", "echo"),
                    *("init_catalog_tables", "pool_pre_ping", "py-catalog-impl", "py-io-impl", "ssl", "ugi"),
                    *("lock-check-max-wait-time", "lock-check-min-wait-time", "lock-check-retries"),
                ),
                "adls.": (
                    *("account-host", "anon", "blob-storage-authority", "blob-storage-scheme", "client-id"),
                    *("client-secret", "connection-string", "credential", "dfs-storage-authority"),
                    *("dfs-storage-scheme", "sas-token", "tenant-id"),
                ),
                "client.": ("profile-name",),
                "gcs.": (
                    *("access", "cache-timeout", "consistency", "default-bucket-location"),
                    *("requester-pays", "session-kwargs", "version-aware"),
                ),
                "glue.": ("max-retries", "profile-name", "retry-mode", "session-token"),
                "hdfs.": ("host", "kerberos_ticket", "port", "user"),
                "hf.": ("endpoint", "token"),
                "hive.": ("hive2-compatible", "kerberos-authentication", "kerberos-service-name"),
                "rest.": ("sigv4.max-retries",),
                "s3.": (
                    *("anonymous", "connect-timeout", "profile-name", "request-timeout", "resolve-region"),
                    *("retry-strategy-impl", "server-side-encryption", "signer", "signer.endpoint"),
                    *("signer.uri", "sse-kms-key-id"),
                ),
            }.items()
            for name in names
        ),
    ]
)


def pyiceberg_properties(settings: CatalogSettings) -> dict[str, str]:
    """What ``pyiceberg.catalog.load_catalog`` takes."""
    uri = settings.uri
    if sqlite_path(uri) is not None:
        uri = f"{uri}?timeout={SQLITE_BUSY_SECONDS}"
    kind: dict[str, str] = {"type": settings.type}
    if settings.type == "sql":  # a database that was unavailable is asked again on a new connection
        kind |= {"pool_pre_ping": "true"}
    elif settings.type == "rest":
        kind = {"py-catalog-impl": "thermocline.iceberg.rest_catalog.BoundedRestCatalog", **_REST_BOUNDS}
    return {
        **kind,
        **(_PYICEBERG_S3 if "s3" in stores_of(settings) else {}),
        "uri": uri,
        **_warehouse(settings),
        **_oauth2_server(settings),
        **settings.properties,
        # What is said of snapshots is of all of them: files of one that is not seen would be deleted.
        **({"snapshot-loading-mode": "all"} if settings.type == "rest" else {}),  # safety: all-snapshots
    }


def store_properties(settings: CatalogSettings) -> dict[str, str]:
    """What PyIceberg's ``FileIO`` takes, for files of an object store that are no table's."""
    return {**_PYICEBERG_S3, **settings.properties}


def java_properties(settings: CatalogSettings) -> EngineProperties:
    """For Iceberg's Java library (``CatalogUtil.buildIcebergCatalog``) and for Spark."""
    done = EngineProperties({"type": settings.type, "uri": settings.uri})
    if settings.type == "sql":
        uri, credentials = _jdbc_uri(settings.uri)
        done.values |= {"type": "jdbc", "uri": uri, "jdbc.schema-version": "V1", **credentials}
        done.secrets |= {"jdbc.password"} & credentials.keys()
    elif settings.type == "rest":
        done.values |= _REST_BOUNDS
    if stores_of(settings) & {"s3", "gcs", "azure"}:
        # It takes each store's own client by a path's scheme; by default all is Hadoop's, which lacks them.
        done.values["io-impl"] = "org.apache.iceberg.io.ResolvingFileIO"
    if "s3" in stores_of(settings):
        done.values |= _JAVA_S3
    done.values |= _oauth2_server(settings)
    if _is_asked_by_path(settings):
        done.values["s3.path-style-access"] = "true"
    _translate(settings, done, "Iceberg's Java library", lambda words: [words.java] if words.java else [])
    own = {name: value for name, value in settings.properties.items() if name not in WORDS}
    done.values |= {**own, **_warehouse(settings)}
    return done


def trino_properties(settings: CatalogSettings) -> EngineProperties:
    """For a catalog of Trino's Iceberg connector."""
    done = EngineProperties({"connector.name": "iceberg"})
    match settings.type:
        case "sql":
            _add_trino_database(settings, done)
        case "rest":
            done.values |= {"iceberg.catalog.type": "rest", f"{_REST}.uri": settings.uri}
            if settings.warehouse:
                done.values[f"{_REST}.warehouse"] = settings.warehouse
            done.values |= _trino_rest_security(settings.properties)
        case "glue":
            done.values["iceberg.catalog.type"] = "glue"
            if settings.warehouse:
                done.values[f"{_GLUE}.default-warehouse-dir"] = settings.warehouse
        case "hive":
            done.values |= {"iceberg.catalog.type": "hive_metastore", "hive.metastore.uri": settings.uri}
    _add_trino_store(settings, done)
    others = {"rest": (_GLUE,), "glue": (_REST,)}.get(settings.type, (_GLUE, _REST))
    _translate(
        settings,
        done,
        "Trino's Iceberg connector",
        lambda words: [word for word in words.trino if not word.startswith(others)],
    )
    _leave_out(settings.properties.keys() - WORDS.keys(), done, "Trino's Iceberg connector")
    return done


def duckdb_properties(settings: CatalogSettings) -> EngineProperties:
    """For DuckDB's ``CREATE SECRET (TYPE s3, ...)``, by which it reads the files of a table in S3."""
    done = EngineProperties()
    if "s3.endpoint" in settings.properties:
        endpoint = urlsplit(settings.properties["s3.endpoint"])
        done.values["ENDPOINT"] = endpoint.netloc + endpoint.path.rstrip("/")
        done.values["USE_SSL"] = "false" if endpoint.scheme == "http" else "true"
    if _is_asked_by_path(settings):
        done.values["URL_STYLE"] = "path"
    _translate(settings, done, "DuckDB", lambda words: [words.duckdb] if words.duckdb else [])
    _leave_out(settings.properties.keys() - WORDS.keys(), done, "DuckDB")
    return done


def stores_of(settings: CatalogSettings) -> frozenset[str]:
    """Where the tables' files are, by what the settings say: ``local``, ``s3``, ``gcs``, ``azure``, ``hdfs``.

    The warehouse says it by its scheme, else a store's properties do. A REST catalog, Glue or a metastore
    that says no more is taken for one on S3, which is the usual.
    """
    scheme = urlsplit(settings.warehouse).scheme if settings.type != "rest" else ""
    if settings.type == "sql" and scheme in ("", "file"):
        return frozenset({"local"})
    named = {
        store
        for prefix, store in _STORE_PREFIXES.items()
        if any(name.startswith(prefix) for name in settings.properties)
    }
    by_scheme = {_STORE_SCHEMES[scheme]} if scheme in _STORE_SCHEMES else set()
    return frozenset(named | by_scheme or {"s3"})


def sqlite_path(uri: str) -> str | None:
    """The path of the file, where a catalog's address is one of SQLite's."""
    prefix = "sqlite:///"
    return uri[len(prefix) :] if uri.startswith(prefix) else None


def _translate(
    settings: CatalogSettings,
    done: EngineProperties,
    engine: str,
    words_of: Callable[[Words], Sequence[str]],
) -> None:
    for name, words in WORDS.items():
        if name not in settings.properties:
            continue
        theirs = words_of(words)
        if not theirs:
            _leave_out([name], done, engine)
        for word in theirs:
            if word != _DERIVED:
                done.values.setdefault(word, settings.properties[name])
                done.secrets |= {word} if words.is_secret else set()


def _leave_out(names: Iterable[str], done: EngineProperties, engine: str) -> None:
    done.left_out |= dict.fromkeys(
        sorted(names), f"no counterpart is known in {engine}; see its documentation"
    )


def _is_asked_by_path(settings: CatalogSettings) -> bool:
    """Whether a bucket's name is a part of the path: what PyIceberg does at an endpoint of one's own."""
    ours = settings.properties
    return "s3.endpoint" in ours and ours.get("s3.force-virtual-addressing", "").lower() != "true"


def _oauth2_server(settings: CatalogSettings) -> dict[str, str]:
    """Where a credential is exchanged for a token, unless the settings say it: at the catalog itself."""
    ours = settings.properties
    if settings.type != "rest" or "credential" not in ours or "oauth2-server-uri" in ours:
        return {}
    return {"oauth2-server-uri": f"{settings.uri.rstrip('/')}/v1/oauth/tokens"}


def _warehouse(settings: CatalogSettings) -> dict[str, str]:
    """A folder of this machine as a URI; what a catalog's server knows by a name, by that name."""
    place = settings.warehouse
    if not place or settings.type in ("rest", "glue") or urlsplit(place).scheme:
        return {"warehouse": place} if place else {}
    return {"warehouse": Path(place).absolute().as_uri()}


def _jdbc_uri(uri: str) -> tuple[str, dict[str, str]]:
    sqlite = sqlite_path(uri)
    if sqlite is not None:
        return f"jdbc:sqlite:{sqlite}?busy_timeout={SQLITE_BUSY_SECONDS * 1000}", {}
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    asked = parse_qsl(parts.query, keep_blank_values=True)
    query = urlencode([(name, value) for name, value in asked if name not in _CREDENTIALS])
    jdbc = urlunsplit((parts.scheme.split("+")[0], host, parts.path, query, ""))
    credentials = {"user": unquote(parts.username or ""), "password": unquote(parts.password or "")}
    credentials |= {name: value for name, value in asked if name in _CREDENTIALS}
    known = {f"jdbc.{name}": value for name, value in credentials.items() if value}
    if parts.scheme.startswith("postgresql"):
        known |= {"jdbc.socketTimeout": str(POSTGRES_SOCKET_SECONDS), "jdbc.tcpKeepAlive": "true"}
    return f"jdbc:{jdbc}", known


def _add_trino_database(settings: CatalogSettings, done: EngineProperties) -> None:
    java = java_properties(settings).values
    url = java["uri"]
    is_postgresql = url.startswith("jdbc:postgresql")
    # A connection that the network has forgotten never answers.
    limits = [
        f"{name.removeprefix('jdbc.')}={java[name]}"
        for name in ("jdbc.socketTimeout", "jdbc.tcpKeepAlive")
        if name in java
    ]
    if limits:
        url += ("&" if "?" in url else "?") + "&".join(limits)
    done.values |= {
        "iceberg.catalog.type": "jdbc",
        f"{_JDBC}.driver-class": "org.postgresql.Driver" if is_postgresql else "org.sqlite.JDBC",
        f"{_JDBC}.connection-url": url,
        # By this name the database's rows are told from those of other catalogs.
        f"{_JDBC}.catalog-name": settings.name,  # safety: trino-catalog-name
        f"{_JDBC}.default-warehouse-dir": java["warehouse"],
    }
    for name, theirs in (("jdbc.user", "connection-user"), ("jdbc.password", "connection-password")):
        if name in java:
            done.values[f"{_JDBC}.{theirs}"] = java[name]
    done.secrets.add(f"{_JDBC}.connection-password")


def _trino_rest_security(ours: Mapping[str, str]) -> dict[str, str]:
    if ours.get("rest.sigv4-enabled", "").lower() == "true":
        return {f"{_REST}.security": "SIGV4"}  # as Trino 480 has it; 476 has a switch of its own
    if "credential" in ours or "token" in ours:
        return {f"{_REST}.security": "OAUTH2"}
    return {}


_TRINO_STORES: Final = {
    # Absolute paths, as the table's files have them, are looked for below this one.
    "local": {"fs.native-local.enabled": "true", "local.location": "/"},
    "s3": {"fs.native-s3.enabled": "true"},
    "gcs": {"fs.native-gcs.enabled": "true"},
    "azure": {"fs.native-azure.enabled": "true"},
    "hdfs": {"fs.hadoop.enabled": "true"},
}


def _add_trino_store(settings: CatalogSettings, done: EngineProperties) -> None:
    ours = settings.properties
    for store in sorted(stores_of(settings)):
        done.values |= _TRINO_STORES[store]
    if settings.type == "rest" and "s3.access-key-id" not in ours:
        done.values[f"{_REST}.vended-credentials-enabled"] = "true"
    if _is_asked_by_path(settings):
        done.values["s3.path-style-access"] = "true"
    if "adls.account-key" in ours:
        done.values["azure.auth-type"] = "ACCESS_KEY"
