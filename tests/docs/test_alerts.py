"""The alerts ask for metrics that there are, and each leads to a runbook that begins with what to type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import strictyaml

from tests.docs.series import NAME, SERIES

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "thermocline.rules.yml"
RUNBOOKS = sorted((ROOT / "docs" / "runbooks").iterdir())
# Prometheus's own metric, of the job that docs/watching.md and deploy/prometheus/prometheus.yml name.
UP = 'up{job="thermocline"} == 0'
SELECTOR = re.compile(r"\b(thermocline_\w+)\{(\w+)=")


def alerts() -> Iterator[dict[str, Any]]:
    for group in strictyaml.load(RULES.read_text()).data["groups"]:
        yield from group["rules"]


ALERTS = list(alerts())


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: f"{alert['alert']}-{alert['labels']['severity']}")
def test_an_alert_asks_for_metrics_that_there_are(alert: dict[str, Any]) -> None:
    named = NAME.findall(alert["expr"])
    assert named or alert["expr"] == UP
    assert not [name for name in named if name not in SERIES]
    assert not [name for name, label in SELECTOR.findall(alert["expr"]) if label not in SERIES[name]]
    assert alert["labels"]["severity"] in ("warning", "critical")
    assert alert["annotations"]["summary"].endswith(".")


@pytest.mark.parametrize("path", ["docs/watching.md", "deploy/prometheus/prometheus.yml"])
def test_the_job_that_an_alert_asks_for_is_the_one_of_the_scrape(path: str) -> None:
    assert UP in [alert["expr"] for alert in ALERTS]
    assert "job_name: thermocline\n" in (ROOT / path).read_text()


def test_a_table_is_missed_for_days() -> None:
    """Goal: the alert goes on for as long as an outage that began on a Friday may last."""
    (alert,) = [one for one in ALERTS if one["alert"] == "ThermoclineIngestNotRunning"]
    (days,) = re.findall(r"\[(\d+)d\]", alert["expr"])
    assert int(days) >= 7


def test_each_alert_names_a_runbook_and_each_runbook_has_an_alert() -> None:
    named = {ROOT / alert["annotations"]["runbook"] for alert in ALERTS}
    assert sorted(named) == RUNBOOKS


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_a_runbook_begins_with_the_command_to_run(page: Path) -> None:
    """That its commands exist, `test_reference` sees."""
    text = page.read_text()
    assert re.match(r"# [^\n]+\n\n```console\n\$ thermocline [^\n]+\n```\n", text)
    for part in ("**What it means.**", "**The state of the data.**", "**What to do"):
        assert part in text


@pytest.mark.parametrize(
    "alert", {alert["alert"]: alert for alert in ALERTS}.values(), ids=lambda alert: alert["alert"]
)
def test_the_page_on_watching_lists_each_alert_with_its_runbook(alert: dict[str, Any]) -> None:
    page = alert["annotations"]["runbook"].removeprefix("docs/")
    lines = (ROOT / "docs" / "watching.md").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"| `{alert['alert']}` ")]
    assert f"]({page})" in line


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_the_metrics_that_a_page_names_exist(page: Path) -> None:
    """A name that ends with an underscore stands for all that begin so."""
    named = set(re.findall(r"`(thermocline_\w+)", page.read_text()))
    assert not [name for name in named if not any(one.startswith(name) for one in SERIES)]
