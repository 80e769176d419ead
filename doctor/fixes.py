"""Commands of fixes, as they can be pasted into a shell."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thermocline.settings import KafkaSettings

__all__ = ["acls", "console", "export", "more_partitions", "topic_config"]


def topic_config(kafka: KafkaSettings, topic: str, setting: str) -> str:
    """Sets something of a topic."""
    return _tool(
        kafka,
        "kafka-configs.sh",
        f"--alter --entity-type topics --entity-name {topic} --add-config {setting}",
    )


def more_partitions(kafka: KafkaSettings, topic: str, partitions: int) -> str:
    """Adds partitions to a topic."""
    return _tool(kafka, "kafka-topics.sh", f"--alter --topic {topic} --partitions {partitions}")


def acls(kafka: KafkaSettings, principal: str, topic: str, operations: tuple[str, ...]) -> str:
    """Grants rights on a topic."""
    wanted = " ".join(f"--operation {one}" for one in operations)
    user = shlex.quote(f"User:{principal}")
    return _tool(kafka, "kafka-acls.sh", f"--add --allow-principal {user} {wanted} --topic {topic}")


def console(kafka: KafkaSettings, topic: str, partition: int, offset: int) -> str:
    """Shows one record, with its key and its headers."""
    shown = "--property print.key=true --property print.headers=true --property print.timestamp=true"
    return (
        f"kafka-console-consumer.sh --bootstrap-server {kafka.bootstrap_servers} --topic {topic} "
        f"--partition {partition} --offset {offset} --max-messages 1 {shown}"
    )


def export(setting: str, value: object) -> str:
    """Sets one of our settings for the commands of this shell."""
    variable = f"THERMOCLINE_{setting.replace('.', '__').upper()}"
    return f"# for this shell; in the file: {setting}\nexport {variable}={shlex.quote(str(value))}"


def _tool(kafka: KafkaSettings, program: str, arguments: str) -> str:
    command = f"{program} --bootstrap-server {kafka.bootstrap_servers} {arguments}"
    if "security.protocol" not in kafka.client:
        return command
    return f"# as an administrator of Kafka; add --command-config FILE if its tools need to log in\n{command}"
