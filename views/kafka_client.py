"""librdkafka's settings, which are ours, in the words of the Kafka client of Java, which Trino runs.

All of security is said in the client's own file: Trino's `kafka.security-protocol` knows no SASL.
"""

from __future__ import annotations

from typing import Final

from thermocline.settings import KafkaSettings
from thermocline.views.properties import Translation, variable_of

READING: Final = {
    # Else each scan waits half a second for more at the end of the log.
    "fetch.max.wait.ms": "10",
    "max.poll.records": "10000",
    "max.partition.fetch.bytes": "4194304",
    "isolation.level": "read_committed",  # safety: trino-read-committed
}
"""What a scan needs to be quick, and to see what ingest sees."""

_SAME: Final = ("client.rack", "sasl.kerberos.service.name", "request.timeout.ms", "metadata.max.age.ms")
_ENVIRONMENT: Final = {
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_ONE_FILE: Final = "the Java client takes key and certificates from one PEM file: name the same one for both"
_TUNING: Final = "no counterpart in the Kafka client of Java; add one to the file if Trino needs it"


def client_properties(kafka: KafkaSettings, catalog: str) -> Translation:
    """Gives the file `kafka.config.resources` names; secrets are named by the catalog they belong to."""
    ours = dict(kafka.client)
    done = Translation(plain=dict(READING))
    for name in [name for name in _SAME if name in ours]:
        done.plain[name] = ours.pop(name)
    if protocol := ours.pop("security.protocol", ""):
        done.plain["security.protocol"] = protocol.upper()
    _add_sasl(ours, done, catalog)
    _add_trust(ours, done)
    _add_own_key(ours, done, catalog)
    if done.secrets:
        done.plain.update(_ENVIRONMENT)
    done.left_out.update(dict.fromkeys(ours, _TUNING))
    return done


def _add_sasl(ours: dict[str, str], done: Translation, catalog: str) -> None:
    mechanisms = [ours.pop(name) for name in ("sasl.mechanism", "sasl.mechanisms") if name in ours]
    if not mechanisms:
        return
    mechanism = mechanisms[0].upper()
    done.plain["sasl.mechanism"] = mechanism
    if mechanism not in _LOGIN_MODULES:
        done.left_out["sasl.mechanism"] = f"{mechanism} needs a sasl.jaas.config of your own in the file"
        return
    username, password = ours.pop("sasl.username", ""), ours.pop("sasl.password", "")
    variable = variable_of(catalog, "sasl.password")
    done.plain["sasl.jaas.config"] = (
        f'{_LOGIN_MODULES[mechanism]} required username="{_quoted(username)}" password="${{env:{variable}}}";'
    )
    done.secrets[variable] = _quoted(password)


def _add_trust(ours: dict[str, str], done: Translation) -> None:
    if location := ours.pop("ssl.ca.location", ""):
        done.plain |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": location}
    if text := ours.pop("ssl.ca.pem", ""):
        done.plain |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text}
    algorithm = ours.pop("ssl.endpoint.identification.algorithm", None)
    if algorithm is not None:
        # Java says it with nothing.
        done.plain["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm


def _add_own_key(ours: dict[str, str], done: Translation, catalog: str) -> None:
    certificate, key = ours.pop("ssl.certificate.location", ""), ours.pop("ssl.key.location", "")
    if certificate and certificate == key:
        done.plain |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": certificate}
    elif certificate or key:
        done.left_out |= {"ssl.certificate.location": _ONE_FILE, "ssl.key.location": _ONE_FILE}
    if location := ours.pop("ssl.keystore.location", ""):
        done.plain |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": location}
    for name in ("ssl.keystore.password", "ssl.key.password"):
        if name in ours:
            variable = variable_of(catalog, name)
            done.plain[name] = f"${{env:{variable}}}"
            done.secrets[variable] = ours.pop(name)


def _quoted(text: str) -> str:
    """As it stands between quotes in a login configuration of Java."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
