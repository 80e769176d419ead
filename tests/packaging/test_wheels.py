"""What a user installs: one package of ours, and of the client alone nothing else."""

from __future__ import annotations

import email
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def built(project: Path, folder: Path) -> zipfile.ZipFile:
    """The wheel of a copy of the files that git has, as building leaves files beside them."""
    copy = folder / "copy"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.is_file():
            target.write_bytes(source.read_bytes())
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run(
        [*build, "--wheel-dir", str(folder), str(copy / project.relative_to(ROOT))],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


def required(wheel: zipfile.ZipFile) -> set[str]:
    """What it needs without any extra."""
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    needs = email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist") or []
    return {need for need in needs if "extra ==" not in need}


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return built(ROOT, tmp_path_factory.mktemp("product"))


def test_the_wheel_has_one_package_with_every_room_and_nothing_for_developers(
    product: zipfile.ZipFile,
) -> None:
    files = [name for name in product.namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in files} == {"thermocline"}
    rooms = {name.split("/")[1] for name in files if name.count("/") > 1}
    assert {"cli", "client", "doctor", "ingest", "maintenance", "rules"} <= rooms
    assert {"serving", "verify", "views"} <= rooms
    assert "dev" not in rooms
    assert {
        "thermocline/py.typed",
        "thermocline/ingest/log4j2.properties",
        "thermocline/jvm/jars.lock",
        "thermocline/kafka/librdkafka_properties.txt",
        "thermocline/serving/read/lookup.py",
    } <= set(files)


def test_the_client_is_a_wheel_of_its_own_that_needs_httpx_alone(tmp_path: Path) -> None:
    client = built(ROOT / "client", tmp_path)
    files = [name for name in client.namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in files} == {"thermocline_client"}
    assert "thermocline_client/py.typed" in files
    assert required(client) == {"httpx>=0.28"}


def test_the_client_is_the_same_code_in_both(product: zipfile.ZipFile, tmp_path: Path) -> None:
    client = built(ROOT / "client", tmp_path)
    of_client = {name.partition("/")[2]: client.read(name) for name in client.namelist() if ".py" in name}
    in_product = {
        name: product.read(f"thermocline/client/{name}") for name in of_client if name.endswith(".py")
    }
    assert in_product == {name: content for name, content in of_client.items() if name.endswith(".py")}


def test_an_application_with_packages_of_our_rooms_names_uses_the_client(tmp_path: Path) -> None:
    """As a Django project does, whose own `views` or `serving` must stay what is imported."""
    built(ROOT / "client", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    site, project = tmp_path / "site", tmp_path / "project"
    zipfile.ZipFile(wheel).extractall(site)
    for name in ("ingest", "serving", "views"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text(f"OF = 'the project: {name}'\n")
    code = f"""
import sys
sys.path[:0] = [{str(project)!r}, {str(site)!r}]
import ingest, serving, views
from thermocline_client import Client
print(ingest.OF, serving.OF, views.OF, Client.__module__.partition('.')[0], 'thermocline' in sys.modules)
"""
    said = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, cwd=project
    ).stdout
    assert said.split() == [
        "the",
        "project:",
        "ingest",
        "the",
        "project:",
        "serving",
        "the",
        "project:",
        "views",
        "thermocline_client",
        "False",
    ]
