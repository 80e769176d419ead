"""Our catalog's settings, which have PyIceberg's names, in the words of Trino's Iceberg connector.

Where an object store has no keys in our settings, Trino finds its own as the cloud's libraries do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from thermocline.iceberg.catalog import java_properties
from thermocline.settings import CatalogSettings
from views.properties import Translation, variable_of

_JDBC: Final = "iceberg.jdbc-catalog"
_REST: Final = "iceberg.rest-catalog"
_GLUE: Final = "hive.metastore.glue"

_PLAIN: Final[Mapping[str, Mapping[str, str]]] = {
    "sql": {},
    "hive": {},
    "rest": {
        "prefix": f"{_REST}.prefix",
        "oauth2-server-uri": f"{_REST}.oauth2.server-uri",
        "scope": f"{_REST}.oauth2.scope",
        "rest.signing-name": f"{_REST}.signing-name",
    },
    "glue": {
        "glue.region": f"{_GLUE}.region",
        "client.region": f"{_GLUE}.region",
        "glue.endpoint": f"{_GLUE}.endpoint-url",
        "glue.id": f"{_GLUE}.catalogid",
        "glue.role-arn": f"{_GLUE}.iam-role",
        "client.role-arn": f"{_GLUE}.iam-role",
    },
}
_SECRET: Final[Mapping[str, Mapping[str, str]]] = {
    "sql": {},
    "hive": {},
    "rest": {"credential": f"{_REST}.oauth2.credential", "token": f"{_REST}.oauth2.token"},
    "glue": {
        "glue.access-key-id": f"{_GLUE}.aws-access-key",
        "glue.secret-access-key": f"{_GLUE}.aws-secret-key",
        "client.access-key-id": f"{_GLUE}.aws-access-key",
        "client.secret-access-key": f"{_GLUE}.aws-secret-key",
    },
}
_STORE_PLAIN: Final = {
    "s3.endpoint": "s3.endpoint",
    "s3.region": "s3.region",
    "client.region": "s3.region",
    "s3.role-arn": "s3.iam-role",
    "client.role-arn": "s3.iam-role",
    "s3.role-session-name": "s3.role-session-name",
    "gcs.project-id": "gcs.project-id",
    "gcs.service.host": "gcs.endpoint",
}
_STORE_SECRET: Final = {
    "s3.access-key-id": "s3.aws-access-key",
    "s3.secret-access-key": "s3.aws-secret-key",
    "client.access-key-id": "s3.aws-access-key",
    "client.secret-access-key": "s3.aws-secret-key",
    "adls.account-key": "azure.access-key",
}
_STORES: Final = {
    "s3": "fs.native-s3.enabled",
    "s3a": "fs.native-s3.enabled",
    "s3n": "fs.native-s3.enabled",
    "gs": "fs.native-gcs.enabled",
    "abfs": "fs.native-azure.enabled",
    "abfss": "fs.native-azure.enabled",
    "wasb": "fs.native-azure.enabled",
    "wasbs": "fs.native-azure.enabled",
    "hdfs": "fs.hadoop.enabled",
}
_PREFIXES: Final = {
    "s3.": "fs.native-s3.enabled",
    "gcs.": "fs.native-gcs.enabled",
    "adls.": "fs.native-azure.enabled",
}
_NO_COUNTERPART: Final = "no counterpart is known in Trino's Iceberg connector; see its documentation"


def lake_properties(settings: CatalogSettings, catalog: str) -> Translation:
    """Gives the catalog's properties file, with secrets named by the Trino catalog that they belong to."""
    done = Translation(plain={"connector.name": "iceberg"})
    _add_place(settings, done, catalog)
    _add_store(settings, done)
    ours = settings.properties
    plain = (_PLAIN[settings.type], _STORE_PLAIN)
    secret = (_SECRET[settings.type], _STORE_SECRET)
    for name, value in ours.items():
        names = [words[name] for words in plain if name in words]
        hidden = [words[name] for words in secret if name in words]
        done.plain.update(dict.fromkeys(names, value))
        for theirs in hidden:
            _add_secret(done, catalog, theirs, value)
        if not names and not hidden and name not in _SAID_OTHERWISE:
            done.left_out[name] = _NO_COUNTERPART
    return done


_SAID_OTHERWISE: Final = frozenset({"s3.force-virtual-addressing", "rest.sigv4-enabled", "adls.account-name"})
"""What decides over properties of Trino's that have another shape."""


def _add_place(settings: CatalogSettings, done: Translation, catalog: str) -> None:
    match settings.type:
        case "sql":
            _add_database(settings, done, catalog)
        case "rest":
            done.plain |= {"iceberg.catalog.type": "rest", f"{_REST}.uri": settings.uri}
            if settings.warehouse:
                done.plain[f"{_REST}.warehouse"] = settings.warehouse
            done.plain |= _rest_security(settings.properties)
        case "glue":
            done.plain["iceberg.catalog.type"] = "glue"
            if settings.warehouse:
                done.plain[f"{_GLUE}.default-warehouse-dir"] = settings.warehouse
        case "hive":
            done.plain |= {"iceberg.catalog.type": "hive_metastore", "hive.metastore.uri": settings.uri}


def _add_database(settings: CatalogSettings, done: Translation, catalog: str) -> None:
    java = java_properties(settings)
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
    done.plain |= {
        "iceberg.catalog.type": "jdbc",
        f"{_JDBC}.driver-class": "org.postgresql.Driver" if is_postgresql else "org.sqlite.JDBC",
        f"{_JDBC}.connection-url": url,
        # By this name the database's rows are told from those of other catalogs.
        f"{_JDBC}.catalog-name": settings.name,  # safety: trino-catalog-name
        f"{_JDBC}.default-warehouse-dir": java["warehouse"],
    }
    if user := java.get("jdbc.user"):
        done.plain[f"{_JDBC}.connection-user"] = user
    if password := java.get("jdbc.password"):
        _add_secret(done, catalog, f"{_JDBC}.connection-password", password)


def _rest_security(ours: Mapping[str, str]) -> dict[str, str]:
    if ours.get("rest.sigv4-enabled", "").lower() == "true":
        return {f"{_REST}.security": "SIGV4"}  # as Trino 480 has it; 476 has a switch of its own
    if "credential" in ours or "token" in ours:
        return {f"{_REST}.security": "OAUTH2"}
    return {}


def _add_store(settings: CatalogSettings, done: Translation) -> None:
    ours = settings.properties
    scheme = urlsplit(settings.warehouse).scheme if settings.type != "rest" else ""
    is_local = settings.type == "sql" and scheme in ("", "file")
    if is_local:
        # Absolute paths, as the table's files have them, are looked for below this one.
        done.plain |= {"fs.native-local.enabled": "true", "local.location": "/"}
    named = {flag for prefix, flag in _PREFIXES.items() if any(name.startswith(prefix) for name in ours)}
    if scheme in _STORES:
        named.add(_STORES[scheme])
    if not named and not is_local:
        # A REST catalog, Glue or a metastore that says no more: S3 is the usual one.
        named.add("fs.native-s3.enabled")
    done.plain.update(dict.fromkeys(sorted(named), "true"))
    if settings.type == "rest" and "s3.access-key-id" not in ours:
        done.plain[f"{_REST}.vended-credentials-enabled"] = "true"
    if "s3.endpoint" in ours and ours.get("s3.force-virtual-addressing", "").lower() != "true":
        # What PyIceberg does at an endpoint of one's own.
        done.plain["s3.path-style-access"] = "true"
    if "adls.account-key" in ours:
        done.plain["azure.auth-type"] = "ACCESS_KEY"


def _add_secret(done: Translation, catalog: str, name: str, value: str) -> None:
    variable = variable_of(catalog, name)
    done.plain[name] = f"${{ENV:{variable}}}"  # safety: trino-secrets
    done.secrets[variable] = value
