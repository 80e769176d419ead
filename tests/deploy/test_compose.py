"""The containers: what docker-compose.yml promises of each, by the files alone. No engine runs them here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import strictyaml

from tests.docs.series import NAME, SERIES
from thermocline.errors import Unauthenticated
from thermocline.process.clock import SystemClock
from thermocline.serving.access.admission import Admission
from thermocline.serving.access.clients_file import ClientsFile
from thermocline.serving.process.children import STOP_SECONDS
from thermocline.serving.read.caller import Action, Credentials, Grant

ROOT = Path(__file__).parents[2]
STACK = strictyaml.load((ROOT / "docker-compose.yml").read_text()).data
SERVICES = STACK["services"]
ONE_SHOT = {"topic", "table", "clients"}
DOCKERFILES = sorted((ROOT / "deploy").glob("*.Dockerfile"))
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
# A tag that stays what it is: a whole version.
PINNED = re.compile(r"[\w./-]+:(v?\d+\.\d+\.\d+(-[\w.-]+)?|\d{3}|RELEASE\.[\w-]+)")
FROM = re.compile(r"^FROM (\S+)", re.MULTILINE)

every_service = pytest.mark.parametrize("name", SERVICES)
every_dockerfile = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
every_dashboard = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)


@every_service
def test_an_image_is_pinned(name: str) -> None:
    assert PINNED.fullmatch(SERVICES[name]["image"])


@pytest.mark.parametrize("image", ["kafka", "kafka:latest", "kafka:4", "kafka:4.3", "a/b:stable"])
def test_a_tag_that_moves_is_not_pinned(image: str) -> None:
    assert not PINNED.fullmatch(image)


@every_service
def test_a_port_is_published_on_loopback_alone(name: str) -> None:
    service = SERVICES[name]
    assert "network_mode" not in service
    for port in service.get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)


@every_service
def test_a_container_has_no_rights_to_misuse(name: str) -> None:
    """A user that is not root, by its number, and a file system that it writes to only where that is said."""
    service = SERVICES[name]
    assert re.fullmatch(r"[1-9]\d*:\d+", service["user"])
    assert service["read_only"] == "true"
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    for volume in service.get("volumes", []):
        source, _, rest = volume.partition(":")
        assert source in STACK["volumes"] or rest.endswith(":ro")


@every_service
def test_a_container_that_stays_has_a_health_check_and_others_wait_for_it(name: str) -> None:
    service = SERVICES[name]
    assert ("healthcheck" in service) == (name not in ONE_SHOT)
    for other, how in service.get("depends_on", {}).items():
        ends = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
        assert how["condition"] == ends


@every_dockerfile
def test_no_image_names_a_table_that_another_configuration_may_not_have(path: Path) -> None:
    tables = tomllib.loads((ROOT / "deploy" / "thermocline.toml").read_text())["tables"]
    assert not [name for name in tables if name in path.read_text()]


def test_serving_has_the_time_that_it_needs_to_stop() -> None:
    grace = re.fullmatch(r"(\d+)s", SERVICES["serving"]["stop_grace_period"])
    assert grace is not None
    assert int(grace[1]) > STOP_SECONDS


def test_the_three_images_are_built_and_no_others() -> None:
    built = {service["build"]["dockerfile"] for service in SERVICES.values() if "build" in service}
    assert built == {str(path.relative_to(ROOT)) for path in DOCKERFILES}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for service in SERVICES.values():
        assert ("build" in service) == service["image"].startswith("thermocline-")
        assert "build" not in service or service["image"].endswith(f":{version}")


@pytest.mark.parametrize("name", ["ingest", "serving", "trino"])
def test_what_takes_as_much_memory_as_there_is_has_a_limit(name: str) -> None:
    assert re.fullmatch(r"\dg", SERVICES[name]["mem_limit"])


def test_the_tables_that_are_not_there_are_created(tmp_path: Path) -> None:
    """Method: the service's own words, with a `thermocline` that says what there is and notes the rest."""
    listed = [{"table": name, "exists": name == "b"} for name in ("a", "b", "c")]
    created = _run_table_service(tmp_path, f"echo '{json.dumps(listed)}'")
    assert created == (0, ["table create a", "table create c"])
    assert _run_table_service(tmp_path, f"echo '{json.dumps(listed[1:2])}'") == (0, [])
    assert _run_table_service(tmp_path, "exit 3") == (1, [])
    assert _run_table_service(tmp_path, f"echo '{json.dumps(listed)}'", "exit 3") == (3, ["table create a"])


def _run_table_service(folder: Path, on_list: str, on_create: str = "") -> tuple[int, list[str]]:
    """Its exit code, and the commands beside the list."""
    notes, program, python = (folder / name for name in ("notes", "thermocline", "python"))
    notes.write_text("")
    program.write_text(
        f'#!/bin/sh\nif [ "$2" = list ]; then {on_list}; exit; fi\necho "$@" >> {notes}\n{on_create}\n'
    )
    program.chmod(0o755)
    python.unlink(missing_ok=True)
    python.symlink_to(sys.executable)
    words = [word.replace("$$", "$") for word in SERVICES["table"]["entrypoint"]]
    done = subprocess.run(
        words, env={"PATH": f"{folder}:/usr/bin:/bin"}, capture_output=True, check=False, timeout=60
    )
    return done.returncode, notes.read_text().splitlines()


def test_the_server_admits_by_keys_that_are_made_at_the_first_start(tmp_path: Path) -> None:
    """Method: the service's own words, with the real command, twice; the second time nothing changes."""
    _run_clients_service(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.glob("access/[!.]*")}
    assert sorted(made) == ["clients.toml", "operator.key", "prometheus.key"]
    assert _rights(tmp_path / "access") == {
        "clients.toml": 0o600, "operator.key": 0o600, "prometheus.key": 0o644,  # another user's
    }  # fmt: skip
    admission = Admission(ClientsFile(tmp_path / "access" / "clients.toml"), SystemClock())
    operator, prometheus = (
        admission(Credentials(f"Bearer {made[name].strip()}")) for name in ("operator.key", "prometheus.key")
    )
    assert operator.grant("profiles") == Grant(frozenset(Action))
    assert prometheus.grant("profiles") == Grant(frozenset({Action.ADMIN}))
    with pytest.raises(Unauthenticated):
        admission(Credentials())
    _run_clients_service(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.glob("access/[!.]*")} == made
    file = str(tmp_path / "access" / "clients.toml")
    key = _run_clients_service(tmp_path, "create", "tenant-7", "--table", "*", "--file", file)
    admission = Admission(ClientsFile(Path(file)), SystemClock())
    assert admission(Credentials(f"Bearer {key.strip()}")).name == "tenant-7"


def test_a_key_that_was_lost_before_it_was_kept_is_made_again(tmp_path: Path) -> None:
    _run_clients_service(tmp_path)
    before = (tmp_path / "access" / "operator.key").read_text()
    for _ in range(3):  # a client has two keys at most
        (tmp_path / "access" / "operator.key").unlink()
        _run_clients_service(tmp_path)
    after = (tmp_path / "access" / "operator.key").read_text()
    admission = Admission(ClientsFile(tmp_path / "access" / "clients.toml"), SystemClock())
    assert admission(Credentials(f"Bearer {after.strip()}")).name == "operator"
    with pytest.raises(Unauthenticated):
        admission(Credentials(f"Bearer {before.strip()}"))


def test_the_server_and_who_asks_it_have_the_keys_where_they_were_put() -> None:
    configured = tomllib.loads((ROOT / "deploy" / "thermocline.toml").read_text())["serving"]
    folder = SERVICES["clients"]["environment"]["ACCESS"]
    assert configured["clients_file"] == f"{folder}/clients.toml"
    assert SERVICES["clients"]["volumes"] == [f"access:{folder}"]
    assert f"access:{folder}:ro" in SERVICES["serving"]["volumes"]
    assert SERVICES["serving"]["environment"]["THERMOCLINE_KEY_FILE"] == f"{folder}/operator.key"
    assert folder in (ROOT / "deploy" / "serving.Dockerfile").read_text(), "the image has it, with its owner"
    assert "access:/access:ro" in SERVICES["prometheus"]["volumes"]
    scraped = strictyaml.load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text()).data
    (job,) = scraped["scrape_configs"]
    assert job["authorization"]["credentials_file"] == "/access/prometheus.key"


def _run_clients_service(folder: Path, *arguments: str) -> str:
    """By the configuration of the stack, in a folder of the machine; gives what it prints."""
    (folder / "access").mkdir(exist_ok=True)
    program = folder / "thermocline"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m thermocline "$@"\n')
    program.chmod(0o755)
    words = [word.replace("$$", "$") for word in SERVICES["clients"]["entrypoint"]]
    environment = {
        "PATH": f"{folder}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "THERMOCLINE_CONFIG": str(ROOT / "deploy" / "thermocline.toml"),
        "ACCESS": str(folder / "access"),
        "STORE_ACCESS_KEY": "someone",
        "STORE_SECRET_KEY": "some-secret",
    }
    words += arguments
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _rights(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.glob("[!.]*")}


@every_dockerfile
def test_an_image_stands_on_pinned_ones_and_ends_as_a_user_that_is_not_root(path: Path) -> None:
    text = path.read_text()
    assert all(PINNED.fullmatch(base) for base in FROM.findall(text))
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1])


@every_dockerfile
def test_an_image_installs_what_is_locked_by_hashes_and_nothing_else(path: Path) -> None:
    installs = re.findall(r"pip install ([^&\n]*)", path.read_text())
    assert installs
    for arguments in installs:
        assert "--require-hashes" in arguments or (
            "--no-deps" in arguments and arguments.strip().endswith(".")
        )
    for name in re.findall(r"requirements/(\S+\.txt)", path.read_text()):
        assert "--hash=sha256:" in (ROOT / "requirements" / name).read_text()


def test_ingest_and_serving_have_what_a_catalog_in_postgresql_needs() -> None:
    for name in ("ingest", "serving"):
        assert "\npsycopg-binary==" in (ROOT / "requirements" / f"{name}.txt").read_text()
    fetched = re.findall(r"thermocline\.jvm ([^&\n\\]*)", (ROOT / "deploy" / "ingest.Dockerfile").read_text())
    assert [groups.split() for groups in fetched] == [["spark", "s3", "postgresql"]] * 2


@every_dockerfile
def test_an_image_gets_only_files_that_there_are(path: Path) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for words in re.findall(r"^COPY ((?!--from).+)$", path.read_text(), re.MULTILINE):
        for source in words.split()[:-1]:
            assert (ROOT / source).exists()
            assert source == "." or f"!{source.split('/')[0]}" in ignored


def test_an_image_is_built_of_every_room_and_of_nothing_for_developers_alone() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    linked = {
        link.resolve().relative_to(ROOT).parts[0]
        for link in (ROOT / "thermocline").iterdir()
        if link.is_symlink()
    }
    assert linked - {"dev"} <= let_in
    assert let_in.isdisjoint({"dev", "tests", "benchmarks", "docs"})


def test_every_file_that_a_container_mounts_is_there() -> None:
    mounts = [volume for service in SERVICES.values() for volume in service.get("volumes", [])]
    paths = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert paths
    assert all((ROOT / path).exists() for path in paths)


def test_prometheus_asks_services_that_there_are_at_ports_that_they_have() -> None:
    configuration = (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text()
    (job,) = strictyaml.load(configuration).data["scrape_configs"]
    for target in job["static_configs"][0]["targets"]:
        service, _, port = target.partition(":")
        assert port in json.dumps(SERVICES[service]["healthcheck"])


@every_dashboard
def test_a_dashboard_asks_for_metrics_that_there_are(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [
        variable["query"]["query"]
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    ]
    for expression in asked:
        named = NAME.findall(expression)
        assert named
        for name in named:
            assert name in SERIES
            for labels in re.findall(rf"{name}\{{([^}}]*)\}}", expression):
                assert set(re.findall(r"(\w+)=", labels)) <= {*SERIES[name]}
        for by in re.findall(r"by \(([^)]*)\)", expression):
            assert set(by.replace(" ", "").split(",")) - {"le", "instance", "job"} <= {*SERIES[named[0]]}


@every_dashboard
def test_a_dashboard_asks_the_prometheus_that_is_chosen_whatever_grafana_calls_it(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    chosen, *others = dashboard["templating"]["list"]
    assert (chosen["name"], chosen["type"], chosen["query"]) == ("datasource", "datasource", "prometheus")
    asked = [part["datasource"] for part in (*dashboard["panels"], *others)]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in asked)


def test_the_prometheus_of_the_stack_is_the_one_that_dashboards_choose_first() -> None:
    folder = ROOT / "deploy" / "grafana" / "provisioning" / "datasources"
    (source,) = strictyaml.load((folder / "prometheus.yml").read_text()).data["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", "true")


def test_every_metric_of_a_table_or_a_server_that_an_alert_asks_for_is_on_a_dashboard() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "thermocline.rules.yml").read_text()
    shown = {name for path in DASHBOARDS for name in NAME.findall(path.read_text())}
    assert {_metric(name) for name in NAME.findall(rules)} <= {_metric(name) for name in shown}


def _metric(series: str) -> str:
    return re.sub(r"_(bucket|count|sum)$", "", series)
