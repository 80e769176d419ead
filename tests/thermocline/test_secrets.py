"""No secret of any setting is shown, in whatever setting it stands: the model itself says which there are."""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from thermocline.cli.output import error_document
from thermocline.errors import ThermoclineError, all_errors
from thermocline.process.masking import mask_password, remember
from thermocline.settings import PassThrough, Settings, TableSettings
from thermocline.settings.section import Section

CANARY = "canary-7f3a"
NAMES = (
    "sasl.password",
    "sasl.oauthbearer.client.secret",
    "sasl.jaas.config",
    "ssl.key.pem",
    "ssl.key.password",
    "s3.secret-access-key",
    "s3.access-key-id",
    "s3.session-token",
    "gcs.oauth2.token",
    "adls.account-key",
    "adls.connection-string",
    "adls.sas-token",
    "credential",
    "token",
    "spark.hadoop.fs.s3a.secret.key",
)
"""Of other programs' settings that are secrets."""


def kinds_of(annotation: Any) -> set[type]:
    """The types of a setting, also those within others, as in ``SecretStr | None``."""
    if isinstance(annotation, type) and not get_args(annotation):
        return {annotation}
    within = {kind for one in get_args(annotation) for kind in kinds_of(one)}
    return within | {one for one in (get_origin(annotation),) if one in (dict, tuple)}


def secret_settings(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places of all settings that may have a secret: secrets, other programs' settings, and any text."""
    for name, field in model.model_fields.items():
        kinds = kinds_of(field.annotation)
        if kinds & {SecretStr, PassThrough} or (str in kinds and dict not in kinds):
            yield *above, name
        for kind in kinds:
            if issubclass(kind, Section) and dict not in kinds:
                yield from secret_settings(kind, (*above, name))


PLACES = [
    *secret_settings(Settings),
    *(("tables", "profiles", *place) for place in secret_settings(TableSettings)),
]


def value_at(place: tuple[str, ...], secret: str) -> Any:
    """A secret as it may stand there."""
    model: Any = TableSettings if place[0] == "tables" else Settings
    for section in place[2:-1] if place[0] == "tables" else place[:-1]:
        (model,) = (
            kind for kind in kinds_of(model.model_fields[section].annotation) if issubclass(kind, Section)
        )
    kinds = kinds_of(model.model_fields[place[-1]].annotation)
    if SecretStr in kinds:
        return SecretStr(secret)
    if PassThrough in kinds:
        return PassThrough(
            {f"{name}": f"{secret}-{number}" for number, name in enumerate(NAMES)}
            | {"url": f"https://user:{secret}-url@host/"}
        )
    text = f"https://user:{secret}@host/path?password={secret}-2&x=1"
    return (text,) if tuple in kinds else text


def settings_with(values: dict[tuple[str, ...], Any]) -> Settings:
    """Settings with these values, of which some would not pass the checks."""
    table = TableSettings(identifier="a.b", topics=("t",), key=("id",), columns={"id": "int"})
    settings = Settings.model_validate(
        {"kafka": {"bootstrap_servers": "h:1"}, "catalog": {"type": "glue"}}
    ).model_copy(update={"tables": {"profiles": table}})
    for place, value in values.items():
        settings = _put(settings, place, value)
    return settings


def _put(node: Any, place: tuple[str, ...], value: Any) -> Any:
    name, *rest = place
    of = node[name] if isinstance(node, dict) else getattr(node, name)
    new = _put(of, tuple(rest), value) if rest else value
    return node | {name: new} if isinstance(node, dict) else node.model_copy(update={name: new})


@pytest.fixture
def everywhere() -> Settings:
    """A secret of its own in each place."""
    return settings_with(
        {place: value_at(place, f"{CANARY}-{number}") for number, place in enumerate(PLACES)}
    )


def test_the_places_are_those_that_are_known() -> None:
    """Method: some by hand, so that a walk that finds none is noticed."""
    assert {
        ("kafka", "client"),
        ("catalog", "properties"),
        ("catalog", "uri"),
        ("catalog", "warehouse"),
        ("spark", "conf"),
        ("registry", "url"),
        ("registry", "password"),
        ("serving", "catalog", "reader_properties"),
        ("views", "password"),
        ("views", "live_uri"),
        ("serving", "cors_origins"),
        ("tables", "profiles", "view_filter"),
    } <= set(PLACES)


def test_no_secret_is_in_the_printed_form_of_the_settings(everywhere: Settings) -> None:
    sections = [everywhere, *(getattr(everywhere, name) for name in Settings.model_fields)]
    for section in sections:
        for text in (repr(section), str(section), f"{section}", f"{section!s}"):
            assert CANARY not in text
    assert CANARY not in json.dumps(everywhere.shown())
    for properties in (everywhere.kafka.client, everywhere.spark.conf, everywhere.catalog.properties):
        assert CANARY not in f"{properties} {properties!r}"
    assert pickle.loads(pickle.dumps(everywhere)) == everywhere, "they are there all the same"


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_every_secret_is_known_to_what_hides_them(place: tuple[str, ...]) -> None:
    secrets = set(settings_with({place: value_at(place, CANARY)}).secrets())
    value = value_at(place, CANARY)
    match value:
        case SecretStr():
            assert secrets == {CANARY}
        case PassThrough():
            assert {f"{CANARY}-{number}" for number in range(len(NAMES))} | {f"{CANARY}-url"} <= secrets
        case _:
            assert {CANARY, f"{CANARY}-2"} <= secrets


def test_no_secret_is_in_an_error_of_the_model() -> None:
    """Method: each setting that is one is of the wrong type; what others say goes through `load`."""
    for place in PLACES:
        if not isinstance(value_at(place, CANARY), SecretStr | PassThrough):
            continue
        tree: dict[str, Any] = {"kafka": {"client": {"sasl.password": CANARY}}, "catalog": {}}
        node = tree
        for part in place[:-1]:
            node = node.setdefault(part, {})
        for wrong in ([f"https://u:{CANARY}@h"], {"x": [CANARY]}):
            node[place[-1]] = wrong
            with pytest.raises(ValidationError) as caught:
                Settings.model_validate(tree)
            assert CANARY not in str(caught.value) + repr(caught.value)


TOLD: dict[Any, Any] = {
    str: f"refused by {CANARY}: x",
    tuple[str, ...]: (f"refused by {CANARY}: x", CANARY),
    int: 7,
    float: 1.5,
    float | None: None,
    bool: True,
    tuple[int, ...]: (1, 2),
    Mapping[str, Any]: {"snapshot_id": "1", "seam": {}, "end": {}},
    tuple[Mapping[str, Any], ...]: (
        {"topic": "t", "partition": 0, "offset": 1, "stage": "key", "reason": CANARY},
    ),
    tuple[Mapping[str, str | int], ...]: (
        {"topic": "t", "partition": 0, "offset_first": 7, "offset_last": 9},
    ),
}


@pytest.mark.parametrize(("code", "error"), all_errors().items())
def test_no_secret_is_in_an_error_whatever_is_told_of_it(code: str, error: type[ThermoclineError]) -> None:
    """Goal: another program's words, which quote a secret, become part of an error, which is shown."""
    remember([CANARY])
    hints = get_type_hints(error)
    made = error(**{name: TOLD[hints[name]] for name in inspect.signature(error).parameters})
    problem = {name: value for name, value in made.to_problem("x").items() if name not in error.members}
    shown = [code, made.what, made.state, made.cause, made.next, str(made), problem, error_document(made)]
    assert CANARY not in json.dumps(shown)


def test_a_text_that_no_setting_explains_is_masked_by_what_it_says() -> None:
    for name in NAMES:
        assert CANARY not in mask_password(f"{name}={CANARY}")
        assert CANARY not in mask_password(f"{{'{name}': '{CANARY}'}}")
        assert CANARY not in mask_password(json.dumps({name: CANARY}))


def test_no_default_is_a_secret() -> None:
    assert list(settings_with({}).secrets()) == []
