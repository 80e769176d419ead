"""A schema registry: what the ids mean that records have before their bodies, or in headers.

`SchemaRegistry` is a value that travels beside the Kafka client's settings, into Spark's workers, too. Each
process asks for an id once, since it means the same for ever. What the registry doesn't know is asked for
again after a while: it may be registered by then, or known by the replica that answers.

Source: Confluent Schema Registry API reference, "Schemas" and "Subjects"; wire format with GUIDs since 8.0.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

from thermocline.errors import RegistryUnreachable
from thermocline.process.clock import SystemClock
from thermocline.process.masking import mask_password
from thermocline.rules.avro_schema import SchemaInvalid
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.schemas.protobuf_compiler import CompilerFailed, compiled

__all__ = ["SchemaRegistry"]

UNKNOWN_SECONDS: Final = 30.0
"""For so long it is not asked again for what it doesn't know: a topic may be full of such records."""
UNKNOWN_MAX: Final = 10_000
"""Unknown ids that are remembered: garbage may name billions of them."""
ANSWER_BYTES_MAX: Final = 16 << 20  # a schema of a few megabytes is the largest that registries take
REFERENCES_MAX: Final = 200  # schemas that one refers to, those that they refer to included
REGISTRIES_MAX: Final = 8  # a process reads by one
_NAMED_MAX: Final = 3
_NAMED_CHARACTERS: Final = 300
_OK: Final = 200
_NOT_FOUND: Final = 404
_Referred = dict[tuple[str, str], tuple[str, str]]  # by subject and version, name and text
_Get = Callable[[str], dict[str, Any] | None]
_UNKNOWN_CODES: Final = (40401, 40402, 40403)  # subject, version and schema not found


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """Where a registry is, and who asks it; see `WriterSchemas`. ``ca_file`` is a path, or empty."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    timeout_seconds: float = 5.0

    def of(self, id_: SchemaId) -> WriterSchema:
        """The schema of an id.

        Raises:
            RegistryUnreachable: the registry gives no answer that says whether it knows it.
        """
        return _client(self).of(id_)

    def latest(self, subject: str) -> int | None:
        """The id of a subject's newest schema; None where the registry knows no such subject.

        Raises as ``of`` does.
        """
        return _client(self).latest(subject)

    def named(self, id_: SchemaId) -> str:
        """The subjects and versions that a schema is registered as, in words; empty where nobody can say.

        For people: nothing rests on it, so a registry that does not answer is as good as one that can't say.
        """
        try:
            return _client(self).named(id_)
        except RegistryUnreachable:
            return ""


def _has_transforms(found: Mapping[str, Any]) -> bool:
    """Whether readers are to change what is written: then it is not what the schema says of it."""
    rule_set = found.get("ruleSet")
    if not isinstance(rule_set, dict):
        return False
    rules = [rule for rules in rule_set.values() if isinstance(rules, list) for rule in rules]
    return any(
        isinstance(rule, dict)
        and rule.get("kind") == "TRANSFORM"
        and rule.get("mode") in ("READ", "WRITEREAD")
        and not rule.get("disabled")
        for rule in rules
    )


def _is_serialized(schema: str) -> bool:
    """Whether it is a descriptor in base64, and not the text of a schema."""
    return not any(sign in schema for sign in "{;")


@lru_cache(maxsize=REGISTRIES_MAX)
def _client(registry: SchemaRegistry) -> _Client:
    return _Client(registry)


class _Client:
    """Asks a registry, and remembers for this process what it said."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._url = registry.url.rstrip("/")
        self._known: dict[SchemaId, WriterSchema] = {}
        self._unknown: dict[SchemaId, tuple[float, WriterSchema]] = {}
        self._clock = SystemClock()
        try:
            verified = ssl.create_default_context(cafile=registry.ca_file) if registry.ca_file else True
        except (OSError, ssl.SSLError) as error:
            raise self._unreachable(f"registry.ca_file can't be read: {error}") from error
        import httpx  # noqa: PLC0415  (most processes have no registry to ask, and it takes long to load)

        self._errors = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError)
        self._http = httpx.Client(
            auth=(registry.user, registry.password) if registry.user else None,
            verify=verified,
            timeout=registry.timeout_seconds,
            headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"},
        )

    def of(self, id_: SchemaId) -> WriterSchema:
        known = self._known.get(id_)
        if known is not None:
            return known
        until, unknown = self._unknown.get(id_, (0.0, None))
        if unknown is not None and self._clock.monotonic() < until:
            return unknown
        schema = self._asked(id_)
        if isinstance(schema, WriterSchema):
            self._known[id_] = schema
            return schema
        if len(self._unknown) >= UNKNOWN_MAX:
            self._unknown.clear()
        unknown = WriterSchema(problem=schema)
        self._unknown[id_] = (self._clock.monotonic() + UNKNOWN_SECONDS, unknown)
        return unknown

    def latest(self, subject: str) -> int | None:
        found = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if found is None:
            return None
        if type(found.get("id")) is not int:
            raise self._unreachable("it answers without a schema's id")
        return int(found["id"])

    def named(self, id_: SchemaId) -> str:
        status, content = self._answer(f"/schemas/ids/{id_}/versions")
        found = self._json(content) if status == _OK and isinstance(id_, int) else None
        named = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        words = [f"version {one.get('version')} of {one.get('subject')}"[:_NAMED_CHARACTERS] for one in named]
        return ", ".join(words[:_NAMED_MAX])

    def _asked(self, id_: SchemaId) -> WriterSchema | str:
        """The schema; or why there is none, as things are."""
        path = f"/schemas/ids/{id_}" if isinstance(id_, int) else f"/schemas/guids/{id_}"
        found = self._get(path)
        if found is None:
            return f"the schema registry knows no schema {id_}"
        if _has_transforms(found):  # safety: registry-rules
            return WriterSchema(
                problem=f"schema {id_} has rules that change values, as encryption does, and none is run here"
            )
        kind = str(found.get("schemaType") or "AVRO")[:40]
        if kind not in ("AVRO", "PROTOBUF"):  # records are read without it: it only says what to propose
            text = found.get("schema")
            return WriterSchema((text,) if isinstance(text, str) else (), kind=kind)
        if kind == "PROTOBUF":
            serialized = self._serialized(id_, path)
            if serialized is not None:
                return serialized
        referred: _Referred = {}
        for missing in self._refer(found, referred, self._get):
            return f"schema {id_} refers to {missing}, which the schema registry does not know"
        if len(referred) > REFERENCES_MAX:
            return WriterSchema(problem=f"schema {id_} refers to more than {REFERENCES_MAX} others")
        if kind == "PROTOBUF":
            return self._of_texts(id_, dict(referred.values()), self._text(found))
        return WriterSchema((*(text for _, text in referred.values()), self._text(found)))

    def _serialized(self, id_: SchemaId, path: str) -> WriterSchema | None:
        """A schema of Protobuf from descriptors; None where the registry does not give all of them."""
        from thermocline.rules.protobuf_schema import canonical, descriptors_of  # noqa: PLC0415  (as httpx)

        found, referred = self._in_form(path), _Referred()
        if found is None or any(self._refer(found, referred, self._in_form)):
            return None
        files = dict(referred.values()) | {f"schema-{id_}.proto": self._text(found)}
        try:
            return WriterSchema(kind="PROTOBUF", descriptors=canonical(descriptors_of(files)))
        except SchemaInvalid:
            return None

    def _of_texts(self, id_: SchemaId, texts: dict[str, str], main: str) -> WriterSchema:
        """A schema of Protobuf, compiled."""
        from thermocline.rules.protobuf_schema import canonical  # noqa: PLC0415  (as httpx)

        name = f"schema-{id_}.proto"
        try:
            return WriterSchema(kind="PROTOBUF", descriptors=canonical(compiled({**texts, name: main}, name)))
        except SchemaInvalid as error:
            return WriterSchema(problem=f"schema {id_} can't be compiled: {error}")
        except CompilerFailed as error:
            raise self._unreachable(f"schema {id_}: {error}") from error

    def _refer(self, found: Mapping[str, Any], referred: _Referred, get: _Get) -> Iterator[str]:
        """Adds what a schema refers to, each before those that need it; gives what is missing of it."""
        for reference in self._references(found):
            subject, version = str(reference["subject"]), str(reference["version"])
            if (subject, version) in referred or len(referred) > REFERENCES_MAX:
                continue
            inner = get(f"/subjects/{quote(subject, safe='')}/versions/{quote(version)}?deleted=true")
            if inner is None:
                yield f"version {version} of {subject}"
                return
            name = str(reference.get("name", subject))
            referred[subject, version] = name, ""  # so that one that leads back to itself ends
            yield from self._refer(inner, referred, get)
            del referred[subject, version]
            referred[subject, version] = name, self._text(inner)

    def _references(self, found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        references = found.get("references") or []
        is_known = isinstance(references, list) and all(
            isinstance(one, dict) and {"subject", "version"} <= one.keys() for one in references
        )
        if not is_known:
            raise self._unreachable("it answers with references of another form")
        return references

    def _text(self, found: Mapping[str, Any]) -> str:
        text = found.get("schema")
        if not isinstance(text, str):
            raise self._unreachable("it answers without a schema")
        return text

    def _get(self, path: str) -> dict[str, Any] | None:
        """An answer; None where the registry says that there is no such thing."""
        status, content = self._answer(path)
        body = self._json(content)
        if status == _OK and isinstance(body, dict):
            return body
        if status == _NOT_FOUND:
            code = body.get("error_code") if isinstance(body, dict) else None
            # A wrong URL and a proxy say 404 of everything: then records are not bad, but held back.
            if code in _UNKNOWN_CODES or self._is_registry():  # safety: registry-404
                return None
        raise self._unreachable(f"it answers {status} to {path}")  # safety: registry-held-back

    def _in_form(self, path: str) -> dict[str, Any] | None:
        """An answer with a descriptor instead of a text; None where there is none, for whatever reason.

        Some registries ignore what they are asked for, and give the text; Apicurio fails on some schemas.
        """
        status, content = self._answer(f"{path}{'&' if '?' in path else '?'}format=serialized")
        body = self._json(content)
        is_serialized = status == _OK and isinstance(body, dict) and _is_serialized(self._text(body))
        return body if is_serialized else None

    def _is_registry(self) -> bool:
        """Whether schemas are served there at all. A registry may not know GUIDs, or not take every id."""
        status, content = self._answer("/schemas/types")
        return status == _OK and isinstance(self._json(content), list)

    def _answer(self, path: str) -> tuple[int, bytes]:
        content = bytearray()
        try:
            with self._http.stream("GET", f"{self._url}{path}") as response:
                for part in response.iter_bytes():
                    content += part
                    if len(content) > ANSWER_BYTES_MAX:
                        raise self._unreachable(f"it answers more than {ANSWER_BYTES_MAX >> 20} MB to {path}")
                return response.status_code, bytes(content)
        except self._errors as error:
            raise self._unreachable(str(error) or type(error).__name__) from error

    def _json(self, content: bytes) -> Any:
        try:
            return msgspec.json.decode(content)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None

    def _unreachable(self, detail: str) -> RegistryUnreachable:
        return RegistryUnreachable(url=self._url, detail=mask_password(detail))
