"""Kafka's tools that are in none of our jars, as far as fixes name them: the same options, on real brokers.

`python -m tests.doctor.kafka_tools kafka-acls.sh --bootstrap-server …`; an option that it does not know is an
error, as it is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


def acls(arguments: Sequence[str]) -> None:
    parser = _parser("--bootstrap-server", "--allow-principal", "--topic", "--command-config")
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--operation", action="append", choices=list(_OPERATIONS), required=True)
    given = parser.parse_args(arguments)
    config = {"bootstrap.servers": given.bootstrap_server}
    if given.command_config:  # the administrator's, as `planted` writes it
        config |= {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "secret",
        }
    wanted = [
        AclBinding(
            ResourceType.TOPIC,
            given.topic,
            ResourcePatternType.LITERAL,
            given.allow_principal,
            "*",
            _OPERATIONS[operation],
            AclPermissionType.ALLOW,
        )
        for operation in given.operation
    ]
    admin = AdminClient(config)
    for future in admin.create_acls(wanted).values():
        future.result(30)


def topics(arguments: Sequence[str]) -> None:
    parser = _parser("--bootstrap-server", "--topic")
    parser.add_argument("--alter", action="store_true", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    given = parser.parse_args(arguments)
    admin = AdminClient({"bootstrap.servers": given.bootstrap_server})
    admin.create_partitions([NewPartitions(given.topic, given.partitions)])[given.topic].result(30)


def console_consumer(arguments: Sequence[str]) -> None:
    parser = _parser("--bootstrap-server", "--topic")
    for option in ("--partition", "--offset", "--max-messages"):
        parser.add_argument(option, type=int, required=True)
    parser.add_argument("--property", action="append", default=[])
    given = parser.parse_args(arguments)
    consumer = Consumer({"bootstrap.servers": given.bootstrap_server, "group.id": "console"})
    consumer.assign([TopicPartition(given.topic, given.partition, given.offset)])
    for message in consumer.consume(given.max_messages, 30):
        parts = [message.key(), message.value()] if "print.key=true" in given.property else [message.value()]
        print(*((part or b"null").decode() for part in parts), sep="\t")
    consumer.close()


TOOLS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "kafka-acls.sh": acls,
    "kafka-topics.sh": topics,
    "kafka-console-consumer.sh": console_consumer,
}


def _parser(*texts: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in texts:
        parser.add_argument(option, required=option != "--command-config")
    return parser


if __name__ == "__main__":
    TOOLS[sys.argv[1]](sys.argv[2:])
