"""Errors: one shape, one code each, words that name only what exists, and facts that survive a pickle."""

from __future__ import annotations

import inspect
import json
import pickle
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from thermocline import errors
from thermocline.cli.entry import all_commands
from thermocline.cli.server_answers import error_of
from thermocline.errors import BadRequest, ExitCode, RequestError, ThermoclineError, all_errors, first_line
from thermocline.serving.http.problems import problem_response

EXAMPLES = {
    str: "profiles",
    int: 1234,
    float: 1.5,
    float | None: 1.5,
    bool: True,
    Mapping[str, Any]: {"snapshot_id": "1", "seam": {}, "end": {}},
    tuple[Mapping[str, Any], ...]: (
        {"topic": "t", "partition": 0, "offset": 1, "stage": "key", "reason": "it is not JSON"},
    ),
    tuple[Mapping[str, str | int], ...]: (
        {"topic": "t", "partition": 0, "offset_first": 7, "offset_last": 9},
    ),
    tuple[str, ...]: ("first", "second"),
    tuple[int, ...]: (1, 2),
}
ALL = list(all_errors().values())


def example(error: type[ThermoclineError]) -> ThermoclineError:
    types = typing.get_type_hints(error)
    return error(**{name: EXAMPLES[types[name]] for name in inspect.signature(error).parameters})


def command_words() -> Iterator[str]:
    for name, command in all_commands().commands.items():
        yield name
        yield from (f"{name} {sub}" for sub in getattr(command, "commands", {}))


def test_every_exported_class_is_explained_by_its_code_or_is_a_family() -> None:
    exported = {getattr(errors, name) for name in errors.__all__}
    classes = {found for found in exported if isinstance(found, type) and issubclass(found, ThermoclineError)}
    families = {found for found in classes if found.__subclasses__()}
    assert classes - families == set(ALL)
    assert all(not hasattr(family, "code") for family in families)


def test_codes_are_unique_and_in_kebab_case() -> None:
    leaves = [found for found in ThermoclineError.__subclasses__() if not found.__subclasses__()]
    leaves += [leaf for family in ThermoclineError.__subclasses__() for leaf in family.__subclasses__()]
    assert len({leaf.code for leaf in leaves}) == len(leaves) == len(ALL)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", leaf.code) for leaf in leaves)


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.code)
def test_a_pickle_keeps_class_facts_and_words(error: type[ThermoclineError]) -> None:
    made = example(error)
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is error
    assert (again.facts(), str(again), again.next) == (made.facts(), str(made), made.next)


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.code)
def test_a_client_has_the_servers_error_without_what_the_server_keeps_to_itself(
    error: type[ThermoclineError],
) -> None:
    made = example(error)
    again = error_of(json.loads(bytes(problem_response(made, "/v1").body)))
    assert type(again) is error
    assert (again.what, again.state, again.next) == (made.what, made.state, made.next)
    detail = made.facts().get("detail")
    if not isinstance(made, RequestError) and detail and str(detail) in made.cause:
        assert "server's log" in again.cause


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.code)
def test_the_words_hold_facts_and_no_unfilled_place(error: type[ThermoclineError]) -> None:
    made = example(error)
    words = (made.what, made.state, made.cause, made.next)
    assert made.what == str(made) != ""
    assert not any("{" in text or "None" in text or ".." in text for text in words)
    assert made.retryable or made.next or error is errors.RowNotFound


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.code)
def test_the_page_has_a_title_and_says_more(error: type[ThermoclineError]) -> None:
    title, blank, rest = error.page().partition("\n\n")
    assert title.endswith(".")
    assert "\n" not in title
    assert blank
    assert len(rest.split()) >= 8


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.code)
def test_the_exit_code_and_the_http_status_are_ours(error: type[ThermoclineError]) -> None:
    assert isinstance(error.exit_code, ExitCode)
    assert error.exit_code is not ExitCode.DONE
    assert error.http_status in {400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 422, 429, 431, 500, 503}


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.code)
def test_the_problem_has_the_one_shape(error: type[ThermoclineError]) -> None:
    made = example(error)
    problem = made.to_problem("/v1/tables/profiles/rows")
    assert list(problem) == [
        *("type", "title", "status", "detail", "instance", "code", "state", "next", "retryable"),
        *error.members,
    ]
    assert problem["type"] == f"urn:thermocline:error:{error.code}"
    assert problem["instance"] == "/v1/tables/profiles/rows"
    assert problem["status"] == made.status


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.code)
def test_every_command_that_is_named_exists(error: type[ThermoclineError]) -> None:
    known = set(command_words())
    made = example(error)
    named = re.findall(r"`thermocline ([a-z -]+)", error.page())
    named += re.findall(r"thermocline (?:--config PATH )?([a-z]+(?: [a-z]+)?)", made.next)
    for words in named:
        first, second = [*words.split(), ""][:2]
        assert {first, f"{first} {second}"} & known, f"no command thermocline {words}"


def test_facts_never_carry_a_password() -> None:
    uri = "postgresql+psycopg2://lake:hunter2@db:5432/iceberg"
    made = errors.CatalogUnreachable(uri=uri, detail=f'connection to "{uri}" failed: password=hunter2')
    internal = errors.InternalError.of(ValueError(f"bad {uri} with sasl.password: 'hunter2'"), "a request")
    for error in (made, internal):
        assert "hunter2" not in repr(error) + str(error) + error.cause + str(error.facts())
    assert "lake:****@db:5432" in made.what


def test_gone_offsets_are_counted_only_where_the_broker_said_where_the_log_begins() -> None:
    known = errors.OffsetsGone(table="t", gaps=("a/3@1000-5000", "a/4@7-9"))
    assert "a/3 [1,000, 5,000), 4,000 offsets, a/4 [7, 9), 2 offsets" in known.what
    assert known.next.startswith("thermocline ingest accept-gap t --fact a/3@1000-5000 --fact a/4@7-9\n")
    unknown = errors.OffsetsGone(table="t", gaps=("a/3@1000-?",))
    assert "a/3@1000 (the broker refuses to read it)" in unknown.what
    assert unknown.next == "thermocline ingest offsets t"


def test_a_name_that_is_nearly_right_is_suggested() -> None:
    assert (
        'did you mean "profiles"?' in errors.UnknownTable(table="profile", known=("orders", "profiles")).what
    )
    assert "did you mean" not in errors.UnknownTable(table="x", known=("orders", "profiles")).what


def test_a_bad_request_is_answered_with_the_status_of_the_rule_that_it_breaks() -> None:
    made = [
        BadRequest.malformed(),
        BadRequest.no_route("/nowhere"),
        BadRequest.of_method("PUT", "/livez", ("GET", "HEAD")),
        BadRequest.not_acceptable("text/x", ("csv",)),
        BadRequest.body_too_large(9),
        BadRequest.of_media_type("text/plain"),
        BadRequest.head_too_large(9),
    ]
    assert [error.to_problem("/")["status"] for error in made] == [400, 404, 405, 406, 413, 415, 431]
    assert [problem_response(error, "/").headers.get("Allow") for error in made[1:3]] == [None, "GET, HEAD"]


def test_a_bad_parameter_sends_to_the_servers_docs_only_those_who_ask_over_http() -> None:
    made = errors.BadParameter(name="--at", problem="it is no time")
    assert made.next == "correct it; see thermocline COMMAND --help"
    assert made.to_problem("/v1")["next"] == "correct it; see /docs of the server"
    told = errors.BadParameter(name="t", problem="it is no time", correction="ask again")
    assert (told.next, told.to_problem("/v1")["next"]) == ("ask again", "ask again")


def test_a_catalog_that_was_restored_has_servers_begin_again_without_their_state() -> None:
    made = errors.ForeignSnapshot(table="t", snapshot_id=1, detail="it is older", is_served_newer=True)
    assert "stop the server, delete serving.state_dir/t, and start it again" in made.next


def test_an_error_cannot_be_made_without_its_facts() -> None:
    with pytest.raises(TypeError):
        errors.TopicMissing(topic="profiles")  # type: ignore[call-arg]


def test_another_programs_error_without_words_is_told_by_its_class() -> None:
    said = [first_line(error) for error in (OSError(), OSError("\n"), OSError(" away\nand more "))]
    assert said == ["OSError", "OSError", "away"]
