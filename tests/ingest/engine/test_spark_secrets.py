"""What other users of the machine see of the settings of Spark's JVM: nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

CANARY = "canary-7f3a"
ODD = f" {CANARY}\\ #!=:'\"ü😀 "
SCRIPT = """
import json, os, sys
from pathlib import Path
import psutil
from thermocline.ingest.engine.spark import start_spark
from thermocline.settings import load_settings

session = start_spark(load_settings(Path(sys.argv[1])), "tests")
(jvm,) = [one for one in psutil.Process().children(recursive=True) if one.name() == "java"]
conf = session.sparkContext.getConf()
session.range(100).repartition(4).groupBy("id").count().collect()
local = Path(conf.get("spark.local.dir"))
print(json.dumps({
    "conf": {name: conf.get(f"spark.sql.catalog.lake.{name}") for name in ("credential", "odd")},
    "own": conf.get("spark.own"),
    "defaults": conf.get("spark.of.the.defaults"),
    "memory": session._jvm.java.lang.Runtime.getRuntime().maxMemory(),
    "temporary": session._jvm.java.lang.System.getProperty("java.io.tmpdir") == str(local),
    "environment": sorted(name for name in jvm.environ() if name.startswith("THERMOCLINE_")),
    "kept": os.environ["THERMOCLINE_CATALOG__PROPERTIES__CREDENTIAL"],
    "open": [str(one) for one in [local, *local.rglob("*")] if one.exists() and one.stat().st_mode & 0o077],
    "files": sum(one.is_file() for one in local.rglob("*")),
}))
session.stop()
"""
CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:9"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[catalog.properties]
odd = {odd}
[spark]
master = "local[1]"
[spark.conf]
"spark.own" = "{canary}"
"""


@pytest.mark.jvm
def test_the_command_line_of_sparks_jvm_has_no_setting(tmp_path: Path) -> None:
    """Method: look at all command lines from the start on; the JVM's settings are then as they have to be."""
    config, seen = tmp_path / "thermocline.toml", set[str]()
    config.write_text(CONFIG.format(odd=json.dumps(ODD, ensure_ascii=False), canary=CANARY))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.of.the.defaults  yes\nspark.own  no\n")
    variables = {
        "THERMOCLINE_CATALOG__PROPERTIES__CREDENTIAL": f"id:{CANARY}",
        "THERMOCLINE_KEY": CANARY,
        "THERMOCLINE_CACHE": os.environ.get("THERMOCLINE_CACHE", ""),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "TMPDIR": str(tmp_path),
    }
    command = [sys.executable, "-c", SCRIPT, str(config)]
    environment = os.environ | {name: value for name, value in variables.items() if value}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            for one in psutil.Process(process.pid).children(recursive=True):
                try:
                    seen.add(" ".join(one.cmdline()))
                except psutil.Error:  # it has ended
                    continue
            time.sleep(0.02)
        said = json.loads(process.stdout.read() if process.stdout else "")
    assert any("org.apache.spark.deploy.SparkSubmit" in one for one in seen)
    assert not [one for one in seen if CANARY in one]
    assert said["conf"] == {"credential": f"id:{CANARY}", "odd": ODD}
    assert (said["own"], said["defaults"]) == (CANARY, "yes"), "ours win over Spark's defaults"
    assert said["memory"] < 1_100_000_000, "what the JVM has to know before it starts is known to it"
    assert said["environment"] in ([], ["THERMOCLINE_CACHE"])
    assert said["kept"] == f"id:{CANARY}"
    assert said["temporary"]
    assert (said["open"], said["files"] > 0) == ([], True), "what it shuffles is private, too"
    left = [one.name for one in tmp_path.iterdir() if one.name.startswith("thermocline-")]
    assert left == []
