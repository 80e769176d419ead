"""The documentation cannot fall behind: what exists stands in it, and what it tells people to type exists."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from fastapi.openapi.utils import get_openapi
from prometheus_client.metrics import MetricWrapperBase

from thermocline.cli.entry import all_commands
from thermocline.errors import ExitCode, all_errors
from thermocline.ingest.owner import measures as ingest_measures
from thermocline.maintenance import measures as maintenance_measures
from thermocline.process import metrics
from thermocline.serving.http.app import create_app
from thermocline.serving.read.tables import Tables
from thermocline.serving.store import measures
from thermocline.settings import ServingSettings, Settings, TableSettings
from thermocline.settings.route import RouteSettings

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference"
PAGES = sorted(DOCS.rglob("*.md"))
COMMAND = re.compile(r"thermocline ((?:[a-z]+(?:-[a-z]+)* ?)+)")


def load_generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load_generate()


def commands_of(command: Any, path: str = "") -> Iterator[str]:
    for name, child in getattr(command, "commands", {}).items():
        yield f"{path}{name}"
        yield from commands_of(child, f"{path}{name} ")


COMMANDS = list(commands_of(all_commands()))


@pytest.mark.parametrize("name", generate.PAGES)
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    assert (REFERENCE / name).read_text() == generate.PAGES[name](), "out of date: make docs"


def test_check_names_the_pages_that_are_out_of_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "REFERENCE", tmp_path)
    assert generate.main(["--check"]) == 1
    assert "metrics.md is out of date" in capsys.readouterr().err
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


def test_a_setting_without_a_meaning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: text for name, text in generate.SETTINGS.items() if name != "serving.port"}
    monkeypatch.setattr(generate, "SETTINGS", known)
    with pytest.raises(AssertionError, match=r"serving\.port"):
        generate.settings_page()


class _Route:
    """The settings of a route that are not those of its tables."""

    model_fields: Final = {
        name: field
        for name, field in RouteSettings.model_fields.items()
        if name not in TableSettings.model_fields or name == "topics"
    }


def test_every_setting_is_documented() -> None:
    sections = {
        name: field.annotation
        for name, field in Settings.model_fields.items()
        if name not in ("tables", "routes")
    }
    models: dict[str, Any] = {**sections, "tables.NAME": TableSettings, "routes.NAME": _Route}
    text = (REFERENCE / "settings.md").read_text()
    missing = [
        f"{place}.{name}"
        for place, model in models.items()
        for name in model.model_fields
        # A section within a section has a heading of its own.
        if f"| `{place}.{name}` |" not in text and f"## [{place}.{name}]" not in text
    ]
    assert not missing


def test_every_command_is_documented() -> None:
    text = (REFERENCE / "cli.md").read_text()
    assert not [name for name in COMMANDS if f"\n## thermocline {name}\n" not in text]


def test_every_error_and_exit_code_is_documented() -> None:
    text = (REFERENCE / "errors.md").read_text()
    assert not [code for code in all_errors() if f"\n## {code}\n" not in text]
    assert not [code for code in ExitCode if f"\n| {int(code)} | " not in text]


@pytest.mark.parametrize(
    "page",
    [
        DOCS / "client.md",
        DOCS / "extracts.md",
        REFERENCE / "http.md",
        *sorted((DOCS / "runbooks").glob("*.md")),
    ],
    ids=lambda page: page.stem,
)
def test_the_error_codes_that_a_page_names_exist(page: Path) -> None:
    """On these pages, whatever has a code's form is one."""
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", page.read_text()))
    assert named <= all_errors().keys()


def test_every_route_is_documented() -> None:
    text = (REFERENCE / "http.md").read_text()
    api = create_app(Tables([]), ServingSettings()).api
    paths = list(get_openapi(title="", version="", routes=api.routes)["paths"])
    assert len(paths) > 10
    assert not [path for path in paths if f" {path}` |" not in text]


def test_every_metric_is_documented() -> None:
    text = (REFERENCE / "metrics.md").read_text()
    found = [
        value
        for module in (metrics, measures, ingest_measures, maintenance_measures)
        for value in vars(module).values()
    ]
    names = [next(iter(m.describe())).name for m in found if isinstance(m, MetricWrapperBase)]
    assert len(names) > 10
    assert not [name for name in names if f"| `{name}" not in text]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_that_a_page_names_exist(page: Path) -> None:
    """What the design plans stands in one section, which is left out here."""
    text = re.sub(r"## Not built yet\n.*?(?=\n## |\Z)", "", page.read_text(), flags=re.DOTALL)
    written = [
        match[1].split()
        for match in COMMAND.finditer(" ".join(re.findall(r"`[^`]+`|^\$ .*", text, re.MULTILINE)))
    ]
    assert not [words for words in written if words[0] not in COMMANDS]
    groups = {name.split()[0] for name in COMMANDS if " " in name}
    assert not [
        words for words in written if words[0] in groups and words[1:] and " ".join(words[:2]) not in COMMANDS
    ]
